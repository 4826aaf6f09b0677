//! `dlock doctor`: what a store is, how fast it is, and what its locks promise.
//!
//! It takes locks of its own below `dlock-doctor:`, so rights that are missing show here and not at three in the morning.

use std::time::{Duration, Instant, SystemTime};

use console::style;
use dlock::{Durability, Error, Expiry, Fencing, OncePer, Profile, WakeStyle};
use serde::{Serialize, Serializer};

use crate::cli::{DoctorArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, words};
use crate::store::Store;
use crate::trials::{self, TTL, probe};

/// A kind of call, and `yes` or the error.
type Trial = (&'static str, String);

#[derive(Debug, Default, Serialize)]
struct Report {
    kind: &'static str,
    /// The host and the port, where the store has them.
    host: Option<String>,
    namespace: String,
    version: Option<String>,
    role: Option<String>,
    connect_ms: f64,
    /// One lock taken and released; unknown if that fails.
    cycle_p50_ms: Option<f64>,
    cycle_p99_ms: Option<f64>,
    /// The store's clock minus that of this host; known where the store tells its time.
    clock_difference_ms: Option<i64>,
    /// The trials, each with its outcome.
    #[serde(serialize_with = "as_map")]
    trials: Vec<Trial>,
    #[serde(serialize_with = "as_map")]
    promises: Vec<(&'static str, String)>,
    /// The server's settings on which a promise depends.
    #[serde(serialize_with = "as_map")]
    settings: Vec<(String, String)>,
    /// Settings and states of the store that weaken a promise.
    findings: Vec<String>,
    #[serde(serialize_with = "as_map")]
    counts: Vec<(String, u64)>,
}

/// In the order of the list.
fn as_map<S: Serializer>(pairs: &[(impl Serialize, impl Serialize)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

pub(crate) async fn examine(mut args: StoreArgs, doctor: DoctorArgs, json: bool) -> Result<Exit, Failure> {
    if doctor.address.is_some() {
        args.url = doctor.address;
    }
    let began = Instant::now();
    let store = Store::open(&args).await?;
    let mut report = Report { connect_ms: milliseconds(began.elapsed()), ..Report::default() };
    let backend = store.registry.backend(Some(&store.backend)).await?;
    let profile = backend.profile();
    (report.kind, report.host, report.namespace) = (profile.kind, backend.host(), store.namespace.clone());
    let (mut trials, mut durability) = (Vec::new(), profile.durability);
    match store.registry.ready(&store.backend).await {
        Ok(health) => {
            (report.version, report.role, report.findings, report.counts) =
                (health.version, health.role, health.findings, health.counts);
            (report.settings, durability) = (health.settings, health.durability.unwrap_or(durability));
        }
        Err(error) => trials.push(("examine the server", Err(error))),
    }
    let members = report.counts.iter().find_map(|(name, count)| (name == "members").then_some(*count));
    report.promises = promises(profile, durability, members);
    let once_per = clock_difference(&store).await.map(|difference| report.clock_difference_ms = difference);
    trials.extend(trials::all(&store, profile, once_per).await);
    let mut cycles = Vec::new();
    // A store that takes no lock has no latency, and a trial says why.
    if trials.iter().all(|(what, outcome)| *what != trials::TAKE || outcome.is_ok()) {
        for _ in 0..doctor.rounds {
            let began = Instant::now();
            if let Err(error) = trials::cycle(probe(&store, "latency")).await {
                trials.push(("measure the latency", Err(error)));
                break;
            }
            cycles.push(began.elapsed());
        }
    }
    cycles.sort_unstable();
    // Rounded up: of 50 cycles the slowest is the p99.
    let share = |percent: usize| {
        let place = (cycles.len().saturating_sub(1) * percent).div_ceil(100);
        cycles.get(place).copied().map(milliseconds)
    };
    (report.cycle_p50_ms, report.cycle_p99_ms) = (share(50), share(99));
    let failures = trials.iter().filter_map(|(_, outcome)| outcome.as_ref().err().map(Exit::of));
    // A right that is missing is the reason for the others.
    let exit = failures.max_by_key(|exit| *exit == Exit::NO_PERMISSION).unwrap_or(Exit::OK);
    let said = |outcome: Result<(), Error>| outcome.map_or_else(|error| format!("NO: {error}"), |()| "yes".into());
    report.trials = trials.into_iter().map(|(what, outcome)| (what, said(outcome))).collect();
    if json {
        print_json(&report)?;
    } else {
        tell(&report)?;
    }
    store.registry.shutdown(TTL).await;
    Ok(exit)
}

/// A run of a period says when it began by the store's clock, on stores that have one.
async fn clock_difference(store: &Store) -> Result<Option<i64>, Error> {
    let once_per = OncePer::new(Duration::from_millis(1));
    let began = SystemTime::now();
    probe(store, "clock").once_per(once_per).run(|_held| async {}).await?;
    let ended = SystemTime::now();
    let last = probe(store, "clock").last_success().await?;
    Ok(last.and_then(|last| difference(last.started, (began, ended))))
}

/// By how many milliseconds the store's clock is ahead, which it has read between two moments of this host.
fn difference(read: SystemTime, (began, ended): (SystemTime, SystemTime)) -> Option<i64> {
    let behind = began.duration_since(read).unwrap_or_default();
    let ahead = read.duration_since(ended).unwrap_or_default();
    Some(i64::try_from(ahead.as_millis()).ok()? - i64::try_from(behind.as_millis()).ok()?)
}

/// `members`: those that vote, where the store says how many there are.
fn promises(profile: &Profile, durability: Durability, members: Option<u64>) -> Vec<(&'static str, String)> {
    let survives = match (durability, members) {
        // A majority of two is both.
        (Durability::Consensus, Some(few @ 1..3)) => {
            format!("a restart of the store; NO failover: it has {few} of at least 3 members")
        }
        (Durability::Consensus, _) => "a restart and a failover: a majority agrees on each grant".to_owned(),
        (Durability::Memory, _) => "NO: a restart of the store forgets who holds what".to_owned(),
        (Durability::Node, _) => "a restart of the store; NO failover".to_owned(),
        _ => "unknown".to_owned(),
    };
    let tokens = match profile.fencing {
        Fencing::None => "NO fencing tokens",
        Fencing::Monotonic => "always rise, unless a backup is restored",
        Fencing::MonotonicUnlessFailover => "rise, unless the store forgets at a failover or a restart",
        _ => "unknown",
    };
    let waiting = match profile.wake {
        WakeStyle::Poll { from, to } => format!("waiters ask again after {} to {}", words(from), words(to)),
        WakeStyle::Hint => "the store wakes waiters".into(),
        WakeStyle::Grant => "the store hands the lock over to a waiter".into(),
        _ => "unknown".into(),
    };
    let dead = match profile.expiry {
        Expiry::Lease => format!(
            "free when its lease ends: with a ttl of {} after {} at most",
            words(TTL),
            words(profile.takeover(TTL))
        ),
        Expiry::Session { .. } => {
            format!(
                "free when its connection ends; if it is silent with a ttl of {}, after {} at most",
                words(TTL),
                words(profile.takeover(TTL))
            )
        }
        _ => "unknown".into(),
    };
    let can = |able: bool| if able { "yes" } else { "NO" }.to_owned();
    vec![
        ("locks survive", survives),
        ("tokens", tokens.into()),
        ("dead holder", dead),
        ("waiting", waiting),
        ("fair", can(profile.fair)),
        ("read, write", can(profile.read_write)),
        ("permits", can(profile.permits)),
        ("ttl", format!("{} to {}", words(profile.ttl.min), words(profile.ttl.max))),
    ]
}

fn tell(report: &Report) -> Result<(), Failure> {
    let mut text = format!("{} {}\n", style(report.kind).bold(), report.version.as_deref().unwrap_or_default());
    let mut line = |name: &str, value: String| {
        let value = if value.starts_with("NO") { style(value).yellow() } else { style(value) };
        text += &format!("  {name:<16} {value}\n");
    };
    report.host.iter().for_each(|host| line("host", host.clone()));
    line("namespace", report.namespace.clone());
    report.role.iter().for_each(|role| line("role", role.clone()));
    line("connected in", format!("{:.1} ms", report.connect_ms));
    if let (Some(p50), Some(p99)) = (report.cycle_p50_ms, report.cycle_p99_ms) {
        line("locks", format!("taken and released in {p50:.2} ms (p50), {p99:.2} ms (p99)"));
    }
    report.clock_difference_ms.iter().for_each(|ms| line("its clock", format!("{ms:+} ms of this host's")));
    let (able, unable): (Vec<_>, Vec<_>) = report.trials.iter().partition(|(_, outcome)| outcome == "yes");
    line("this account can", able.iter().map(|(what, _)| *what).collect::<Vec<_>>().join("; "));
    unable.iter().for_each(|(what, outcome)| line(what, outcome.clone()));
    if !report.findings.is_empty() {
        line("a sound store", "keeps the promises below; `weaker` says what this one lacks".into());
    }
    report.promises.iter().for_each(|(name, value)| line(name, value.clone()));
    report.settings.iter().for_each(|(name, value)| line(name, value.clone()));
    report.counts.iter().filter(|(_, number)| *number > 0).for_each(|(name, number)| line(name, number.to_string()));
    for finding in &report.findings {
        text += &format!("  {} {finding}\n", style("weaker:").yellow().bold());
    }
    // A store that could not be asked has no findings either.
    if report.findings.is_empty() && unable.is_empty() {
        text += &format!("  {}\n", style("in good order: no setting here weakens a promise").green());
    }
    print(&text)
}

fn milliseconds(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_is_told_from_one_that_was_read_in_between() {
        let (began, second) = (SystemTime::now(), Duration::from_secs(1));
        let between = (began, began + second);
        assert_eq!(difference(began + second / 2, between), Some(0));
        assert_eq!(difference(began + second * 6, between), Some(5000));
        assert_eq!(difference(began - second * 5, between), Some(-5000));
    }
}
