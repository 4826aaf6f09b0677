//! The parts of the page beside the locks of a store, as JSON.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dlock::{Key, OncePer};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::pages::OpenPage;
use crate::seen::{ms, now_ms, shown, words};
use crate::shared::Shared;

/// The most locks of this process that are listed; all are counted.
const MOST_LISTED: usize = 50;

/// The most waiting candidates of an election that are named.
const MOST_CANDIDATES: usize = 20;

/// The page itself: which stores there are, and whether a hold can be broken.
pub(crate) fn about(shared: &Shared, page: &OpenPage) -> Value {
    json!({
        "stores": shared.registry.installed(),
        "namespace": shared.registry.defaults().namespace,
        "token": shared.who.as_ref().and_then(|_| page.token()),
        "pages": shared.pages.count(),
        "process": std::process::id(),
    })
}

/// The locks that this process holds, the longest hold first, and those that its callers wait for, the most waiters first.
pub(crate) fn here(shared: &Shared) -> Value {
    let (held, count) = shared.registry.longest_held(MOST_LISTED);
    let namespace = shared.registry.defaults().namespace.clone();
    let rows = held.iter().map(|lock| {
        json!({
            "key": shown(lock.key.as_str(), &namespace),
            "store": lock.backend,
            "function": lock.note.site(),
            "hold": lock.id.to_string(),
            "token": lock.token,
            "trace": lock.note.trace(),
            "since": now_ms().saturating_sub(u64::try_from(lock.held.as_millis()).unwrap_or(u64::MAX)),
        })
    });
    let waited = shared.registry.waited_for();
    let hot = waited.iter().take(MOST_LISTED).map(|lock| {
        json!({
            "key": shown(lock.key.as_str(), &namespace),
            "store": lock.backend,
            "waiters": lock.waiters,
        })
    });
    let (rows, hot): (Vec<_>, Vec<_>) = (rows.collect(), hot.collect());
    json!({ "count": count, "held": rows, "waited_count": waited.len(), "waited": hot, "now": now_ms() })
}

pub(crate) async fn leaders(shared: Arc<Shared>) -> Option<Value> {
    let mut elections = shared.elections.clone();
    elections.extend(shared.activity.elections().into_iter().filter(|other| !shared.elections.contains(other)));
    let seen = elections.into_iter().map(|(backend, name)| {
        let election = shared.registry.elect(Key::rendered(&name)).backend(&backend);
        async move {
            let found = match election.candidates().await {
                Ok(found) => found,
                Err(error) => return json!({ "store": backend, "election": name, "error": error.to_string() }),
            };
            let waiters = found.waiters.map(|notes| {
                let names = notes.iter().take(MOST_CANDIDATES).map(|note| note.site().unwrap_or(note.as_str()).to_owned());
                names.collect::<Vec<_>>()
            });
            let leader = found.leader.as_ref().map(|leader| {
                json!({
                    "name": leader.candidate(),
                    "host": leader.note.host(),
                    "pid": leader.note.pid(),
                    "since": leader.note.since_ms(),
                    "term": leader.term,
                })
            });
            json!({ "store": backend, "election": name, "leader": leader, "waiting": found.waiting, "waiters": waiters })
        }
    });
    Some(json!({ "elections": join_all(seen).await }))
}

/// The health of each store, with the guards that keep grants back and the settings that weaken a promise.
pub(crate) async fn stores(shared: Arc<Shared>) -> Option<Value> {
    let seen = shared.registry.installed().into_iter().map(|name| {
        let registry = &shared.registry;
        async move {
            let mut seen = match registry.ready(&name).await {
                Ok(health) => json!({
                    "version": health.version,
                    "role": health.role,
                    "settings": health.settings,
                    "findings": health.findings,
                    "counts": health.counts,
                }),
                Err(error) => words(&error),
            };
            seen["store"] = name.into();
            seen
        }
    });
    Some(json!({ "stores": join_all(seen).await }))
}

/// A lock that is taken once in each period.
struct Task {
    name: String,
    once_per: OncePer,
    backend: Option<String>,
    /// `None` where the values of the call make the key. Then each has a record of its own.
    key: Option<Key>,
    templates: Vec<String>,
}

/// The locks with `once_per`: their last success, and when their next period begins. Annotated functions are known before
/// their first call, and others after it.
pub(crate) async fn tasks(shared: Arc<Shared>) -> Option<Value> {
    let sites = dlock::sites().into_iter().filter_map(|site| {
        let once_per = site.once_per()?;
        Some(Task {
            name: site.name().into(),
            once_per,
            backend: site.backend().map(Into::into),
            key: site.fixed_key(),
            templates: site.templates().iter().map(ToString::to_string).collect(),
        })
    });
    let mut tasks: Vec<_> = sites.collect();
    let names: HashSet<_> = tasks.iter().map(|task| task.name.clone()).collect();
    let others = shared.activity.tasks().into_iter().filter(|((_, name), _)| !names.contains(name));
    tasks.extend(others.map(|((backend, name), task)| Task {
        name,
        once_per: task.once_per,
        backend: Some(backend),
        key: (!task.template.contains('<')).then(|| Key::rendered(&task.template)),
        templates: vec![task.template],
    }));
    let seen = tasks.into_iter().map(|task| {
        let shared = shared.clone();
        async move {
            let mut seen = last_success(&shared, &task).await.unwrap_or_else(|error| words(&error));
            seen["task"] = task.name.into();
            seen["period"] = u64::try_from(task.once_per.period.as_millis()).unwrap_or(u64::MAX).into();
            seen["next"] = next_boundary(task.once_per, now_ms()).into();
            seen
        }
    });
    Some(json!({ "tasks": join_all(seen).await }))
}

async fn last_success(shared: &Shared, task: &Task) -> dlock::Result<Value> {
    let Some(key) = task.key.clone() else { return Ok(json!({ "keys": task.templates })) };
    let lock = shared.registry.lock(key);
    let lock = match &task.backend {
        Some(backend) => lock.backend(backend),
        None => lock,
    };
    let last = lock.last_success().await?;
    Ok(json!({ "last": last.map(|last| json!({
        "started": ms(last.started),
        "took": u64::try_from(last.took.as_millis()).unwrap_or(u64::MAX),
        "host": last.note.host(),
    })) }))
}

/// The first boundary of periods after this moment, by the clock of this host; both since 1970 in milliseconds.
fn next_boundary(once_per: OncePer, now: u64) -> u64 {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (period, offset) = (ms(once_per.period).max(1), ms(once_per.offset));
    let begun = now.saturating_sub(offset) / period;
    (begun + 1).saturating_mul(period).saturating_add(offset)
}

/// Every annotated function of this program, with its options and tuning.
pub(crate) fn sites(shared: &Shared) -> Value {
    let sites = serde_json::from_str(&shared.registry.explain().to_json()).unwrap_or(Value::Null);
    json!({ "sites": sites })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_boundary_is_the_first_one_after_now() {
        let hourly = OncePer::new(Duration::from_secs(3600));
        assert_eq!(next_boundary(hourly, 0), 3_600_000);
        assert_eq!(next_boundary(hourly, 3_599_999), 3_600_000);
        assert_eq!(next_boundary(hourly, 3_600_000), 7_200_000);
        let quarter_past = hourly.offset(Duration::from_secs(900));
        assert_eq!(next_boundary(quarter_past, 3_600_000), 4_500_000);
        assert_eq!(next_boundary(quarter_past, 4_500_000), 8_100_000);
    }
}
