//! `dlock run`: a command that runs while the lock is held.
//!
//! The command ends with its lock: when the lock is lost, when a signal or the time limit comes, and when this process is
//! killed or stopped.

mod child;
#[cfg(target_os = "linux")]
mod family;
mod signals;
pub(crate) mod starter;
#[cfg(target_os = "linux")]
pub(crate) mod supervisor;

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use dlock::{Error, ErrorKind, Guard, Key, Lock, LossCause, OncePer, Registry};

use crate::cli::{OnLost, RunArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::find::alike;
use crate::output::{note, quoted, words};
use crate::store::Store;
use crate::wait::spinner;
use child::Child;
use signals::Signals;

/// A command may take as long as it needs: `max_hold` of the registry is meant for functions.
const LONGEST_HOLD: Duration = dlock_values::LONGEST;

/// How often the command's supervisor is told of renewals: a tenth of the ttl, between these.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How long the store is given for the release at the end.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// The same for a lock that was lost because nobody renewed it in time.
const SHORT_RELEASE_LIMIT: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &StoreArgs, run: Box<RunArgs>) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let registry = Registry::new();
    let acquired = async {
        let store = Store::open_in(registry.clone(), args).await.map_err(|failure| with_codes(failure, &run))?;
        if !run.sensitive {
            warn_of_lookalikes(&store, &run.key).await;
        }
        let lock = lock(&store, &run);
        let waits = spinner(&format!("waiting for {}", shown(&run)));
        let guard = lock.acquire().await;
        waits.finish_and_clear();
        guard
            .map(|guard| (store, guard))
            .map_err(|error| NotHeld { is_held: Exit::of(&error) == Exit::BUSY, failure: ending(error, &run) })
    };
    let acquired = tokio::select! {
        acquired = acquired => Ok(acquired),
        signal = signals.next_deadly() => Err(signal),
    };
    let (store, guard) = match acquired {
        Ok(Ok(held)) => held,
        Ok(Err(NotHeld { failure, is_held })) => {
            return if is_held && run.quiet { Ok(failure.exit()) } else { Err(failure) };
        }
        Err(signal) => {
            // A wait that a signal ends leaves nothing in the store: the abandon has its time.
            registry.shutdown(RELEASE_LIMIT).await;
            return Ok(Exit::of_signal(signal));
        }
    };
    let outcome = under_lock(&run, &guard, &mut signals).await;
    let released = guard.release().await;
    // A lease that has ended is free without a release, unless the answer to a renewal was lost.
    let is_over = matches!(&released, Err(error) if *error.kind() == ErrorKind::Lost(LossCause::Deadline));
    let backend = store.registry.backend(Some(&store.backend)).await?;
    let report = store.registry.shutdown(if is_over { SHORT_RELEASE_LIMIT } else { RELEASE_LIMIT }).await;
    if report.unconfirmed > 0 {
        let bound = words(backend.profile().takeover(run.ttl));
        note(&format!(
            "the store has not confirmed the release of {}, which is free after {bound} at most",
            shown(&run)
        ));
    }
    let exit = outcome?;
    match released {
        // With another `on_lost` the command went on without the lock, so its own exit code counts.
        Err(error) if run.on_lost == OnLost::Cancel && error.is_lost() => Err(ending(error, &run)),
        Err(error) => {
            note(&error.to_string());
            Ok(exit)
        }
        Ok(()) => Ok(exit),
    }
}

/// The key of a template has marks around its values, and a shell's key often lacks them. It is another lock then, so a program
/// and this command would not exclude each other.
async fn warn_of_lookalikes(store: &Store, key: &str) {
    let typed = store.shown(key);
    if typed.contains('<') {
        return;
    }
    let own = Key::rendered(typed).to_string();
    let others = alike(store, typed)
        .await
        .into_iter()
        .map(|lock| Key::from(&lock.key).to_string())
        .filter(|other| *other != own);
    if let Some(other) = others.into_iter().next() {
        note(&format!(
            "the lock {other:?} is held, and {own:?} is another lock; if you mean that one, write it in quotes: '{other}'"
        ));
    }
}

fn lock(store: &Store, run: &RunArgs) -> Lock {
    let command =
        run.command.first().map(|command| Path::new(command).file_name().unwrap_or(command).to_string_lossy());
    let mut lock = store
        .registry
        .lock(Key::rendered(store.shown(&run.key)))
        .backend(&store.backend)
        .name(run.name.clone().unwrap_or_else(|| command.unwrap_or_default().into_owned()))
        .ttl(run.ttl)
        .renew(run.renew)
        .wait(run.wait)
        .mode(run.mode)
        .fair(run.fair)
        .max_hold(run.max_hold.unwrap_or(LONGEST_HOLD));
    if run.sensitive {
        lock = lock.sensitive();
    }
    if let Some(period) = run.once_per {
        let once_per = OncePer::new(period).offset(run.offset.unwrap_or_default());
        lock = lock.once_per(once_per.rerun(run.rerun.is_some()));
    }
    if let Some(min_hold) = run.min_hold {
        lock = lock.min_hold(min_hold);
    }
    if let Some(retry) = run.retry {
        lock = lock.retry(retry);
    }
    if let Some(attempts) = run.attempts {
        lock = lock.attempts(attempts);
    }
    if let Some(backoff) = run.backoff {
        lock = lock.backoff(backoff);
    }
    lock
}

/// Runs the command to its end.
async fn under_lock(run: &RunArgs, guard: &Guard, signals: &mut Signals) -> Result<Exit, Failure> {
    let variables = [
        ("DLOCK_KEY", Some(run.key.clone())),
        ("DLOCK_TOKEN", guard.fence().ok().map(|fence| fence.get().to_string())),
        ("DLOCK_SLOT", guard.slot().map(|slot| slot.to_string())),
    ];
    let ends = run.on_lost == OnLost::Cancel;
    // On a terminal the whole line of the shell stops, and this process with it. Elsewhere the command alone does, from its start.
    #[cfg(unix)]
    if child::leads_group() {
        signals.and_steering()?;
    }
    let mut child = Child::start(&run.command, variables, run.grace, ends.then(|| guard.remaining()))?;
    let limit = async {
        match run.timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => pending().await,
        }
    };
    tokio::pin!(limit);
    let mut renewals = tokio::time::interval(run.ttl.div_f64(10.0).clamp(SHORTEST_LOOK, LONGEST_LOOK));
    // After a stop of this program one is enough.
    renewals.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_lost = false;
    loop {
        tokio::select! {
            ended = child.wait() => return Ok(ended?.exit()),
            signal = signals.next() => child.pass_on(signal),
            _ = renewals.tick(), if ends => child.ends_after(|| guard.remaining())?,
            lost = guard.lost(), if !is_lost => {
                is_lost = true;
                if ends {
                    child.stop().await?;
                    return Err(ending(lost, run));
                }
                note(&format!("{lost}; the command goes on"));
            }
            () = &mut limit => {
                child.stop().await?;
                return Err(Failure::new(Exit::TIMEOUT, format!("the command was ended after its limit of {}", humantime::format_duration(run.timeout.unwrap_or_default()))));
            }
        }
    }
}

/// The failure of a call that did not get the lock, and whether another one has it or has run.
struct NotHeld {
    failure: Failure,
    is_held: bool,
}

impl From<Failure> for NotHeld {
    fn from(failure: Failure) -> Self {
        Self { failure, is_held: false }
    }
}

/// The end of a call that did not run, or lost its lock.
fn ending(error: Error, run: &RunArgs) -> Failure {
    let is_held = matches!(error.kind(), ErrorKind::Busy | ErrorKind::WaitTimeout);
    let failure = with_codes(Failure::from(error), run);
    if is_held { failure.and(&format!("; who holds it: dlock show {}", shown(run))) } else { failure }
}

/// The key as a shell takes it, if others may read it.
fn shown(run: &RunArgs) -> String {
    if run.sensitive { "KEY".into() } else { quoted(&run.key) }
}

/// With the codes that this command was given.
fn with_codes(failure: Failure, run: &RunArgs) -> Failure {
    let exit = match failure.exit() {
        Exit::BUSY => Exit(run.busy_code),
        Exit::OUTAGE => Exit(run.outage_code),
        Exit::LOST => Exit(run.lost_code),
        other => other,
    };
    failure.with_exit(exit)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[tokio::test]
    async fn a_store_that_fails_is_asked_as_often_as_retry_says() {
        // Each connection ends at once.
        let (server, asked) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(AtomicU32::new(0)));
        let url = format!("redis://{}/", server.local_addr().unwrap());
        let count = asked.clone();
        std::thread::spawn(move || {
            for _ in server.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let attempts = async |words: &[&str]| {
            let store = Store { registry: Registry::new(), backend: "store".into(), namespace: "default".into() };
            store.registry.connect_lazy("store", &url).unwrap();
            let cli = Cli::parse_from([&["dlock", "run"], words, &["job", "true"]].concat());
            let Command::Run(run) = cli.command else { panic!("it is `run`") };
            let before = asked.load(Ordering::SeqCst);
            lock(&store, &run).acquire().await.unwrap_err();
            asked.load(Ordering::SeqCst) - before
        };
        let once = attempts(&["--retry", "false"]).await;
        assert!(once > 0);
        assert_eq!(attempts(&["--retry", "2, 1ms..2ms"]).await, 3 * once);
    }
}
