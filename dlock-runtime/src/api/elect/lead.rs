//! The loop that runs a body on the leader alone.

use std::future::Future;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};

use super::{Election, Leader};
use crate::api::outcome::Ran;
use crate::api::run::Run;
use crate::guard::guard_set::Guards;
use crate::hold::jitter::full_jitter;
use crate::options::Wait;

/// The pause before the next campaign, after a loss or a failure. It grows while campaigns fail one after another.
const CAMPAIGN_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Election {
    /// Runs `body` while this candidate leads; after a loss the body goes on to its next await. It returns the body's output when a body has come to
    /// its end as the leader: then the candidate has resigned.
    ///
    /// If the leadership is lost, the body is dropped there, and the candidate campaigns again, for a new term
    /// with a new body. So a body runs again if the store says at its end that the lock was lost meanwhile, for example because
    /// somebody deleted its key: its output is dropped then, since another leader may have begun before it ended. After an outage
    /// the candidate campaigns again too, and after all other states that pass, such as a server that is read-only during a
    /// switch-over ([`ErrorKind::NotPrimary`], [`ErrorKind::FenceRegression`], [`ErrorKind::KeyConflict`]). A body that must go on after its end is called again by a
    /// loop around this function. `dlock::current()` works in the body.
    ///
    /// When a [shutdown](crate::shutdown) begins, the body is dropped and the leader resigns at once, so that the next
    /// candidate need not wait for the shutdown's deadline. A body that has come to its end before is not concerned: its
    /// output is returned.
    ///
    /// ```
    /// # use dlock_runtime as dlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # dlock::install("main", dlock_memory::Memory::new())?;
    /// let invoices = dlock::elect("billing")
    ///     .lead(async |leader| {
    ///         let mut written = 0;
    ///         while written < 3 {
    ///             println!("invoice {written} of term {}", leader.term());
    ///             written += 1;
    ///         }
    ///         written
    ///     })
    ///     .await?;
    /// assert_eq!(invoices, 3);
    /// # Ok(()) }
    /// ```
    ///
    /// It cannot see whether the body has succeeded. So, where the body works in the lock's own transaction (`way=row` of the SQL
    /// stores), it undoes that work and fails with [`ErrorKind::CommitRefused`].
    ///
    /// # Errors
    /// [`ErrorKind::ShutDown`]. Other errors are those that no further campaign can mend, such as
    /// [`ErrorKind::Unsupported`] or [`ErrorKind::PermissionDenied`]; see [`campaign`](Self::campaign).
    pub fn lead<T, F>(&self, body: F) -> impl Future<Output = Result<T>> + use<T, F>
    where
        F: AsyncFnMut(Leader) -> T,
    {
        lead(Self { lock: self.lock.clone().wait(Wait::Forever), ..self.clone() }, body)
    }
}

async fn lead<T>(election: Election, mut body: impl AsyncFnMut(Leader) -> T) -> Result<T> {
    let shared = election.lock.registry().context().shared().clone();
    let mut failed = 0;
    loop {
        let error = match election.campaign().await {
            Ok(leadership) => {
                failed = 0;
                let leader = Leader::clone(&leadership);
                let (guards, body) = (Guards::one(leadership.guard), &mut body);
                let ran = match guards.begin(move || body(leader)) {
                    Ok(body) => {
                        let mut run = Run::holding(election.lock.options(), guards, body);
                        match shared.shutdown.or(&mut run).await {
                            Ok(ran) => ran,
                            // The body has come to its end, and what it has done must not be forgotten.
                            Err(_) if run.is_releasing() => run.await,
                            Err(closed) => return Err(closed),
                        }
                    }
                    Err(lost) => Ran::Lost(lost, None),
                };
                match ran {
                    Ran::Done(output) => return Ok(output),
                    Ran::Failed(error) | Ran::Lost(error, _) => error,
                }
            }
            Err(error) => error,
        };
        if !may_help(&error) {
            return Err(error);
        }
        let again = shared.clock.now().after(full_jitter(failed, CAMPAIGN_PAUSES.0, CAMPAIGN_PAUSES.1));
        failed += 1;
        election.sleep_until(again).await?;
    }
}

/// Whether a further campaign may succeed. Some errors that are not worth the retry of a call pass all the same: a planned
/// switch-over ends, the revisions of a restored etcd pass those that were seen, callers in another lock mode go.
fn may_help(error: &Error) -> bool {
    let passes = matches!(
        error.kind(),
        ErrorKind::Outage | ErrorKind::NotPrimary | ErrorKind::FenceRegression | ErrorKind::KeyConflict
    );
    passes || error.is_lost() || error.is_contention() || error.is_retryable()
}
