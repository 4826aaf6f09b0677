//! How long the server may take, and how often a statement is sent to it again.

use std::error::Error as _;
use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::Clock;

use crate::connection::collisions::Collisions;
use crate::connection::misread::unless_misread;
use crate::dialect::{Dialect, Refusal};

/// How long the server may take for one statement.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How often a statement is sent again that the server undid because of others beside it.
const RETRY_LIMIT: u32 = 5;

/// Ends a request that the server does not answer in time.
pub(crate) async fn answered<T>(clock: &Clock, request: impl Future<Output = Result<T>>) -> Result<T> {
    answered_after(clock, Duration::ZERO, request).await
}

/// Like [`answered`], for a request that waits in the server.
pub(crate) async fn answered_after<T>(
    clock: &Clock,
    wait: Duration,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    let until = clock.now().after(wait).after(ANSWER_LIMIT);
    clock.timeout_at(until, unless_misread(request)).await.ok_or_else(unanswered)?
}

pub(crate) fn unanswered() -> Error {
    Error::outage(format!("the server did not answer within {ANSWER_LIMIT:?}"))
}

/// The times that one statement may still be sent again.
pub(crate) struct Retries(u32);

impl Retries {
    pub(crate) fn new() -> Self {
        Self(RETRY_LIMIT)
    }

    /// Counts the refusal of a statement. True, after a pause: the server undid the statement because of others beside it, and it is
    /// to be sent again.
    pub(crate) async fn again(&mut self, clock: &Clock, collisions: &Collisions, refusal: Option<Refusal>) -> bool {
        refusal.into_iter().for_each(|refusal| collisions.note(refusal));
        if refusal != Some(Refusal::Undone) || self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        let pause = Duration::from_micros(fastrand::u64(0..20_000));
        clock.sleep_until(clock.now().after(pause)).await;
        true
    }

    /// Like [`again`](Self::again), for an opening, which makes tables and tests rights: another opening of the same new tables may
    /// have undone it. It may be done as often as one likes.
    pub(crate) async fn open_again<D: Dialect, T>(
        &mut self,
        clock: &Clock,
        collisions: &Collisions,
        dialect: &D,
        opened: &Result<T>,
    ) -> bool {
        let cause = opened.as_ref().err().and_then(|error| error.source()?.downcast_ref::<sqlx::Error>());
        self.again(clock, collisions, cause.map(|cause| dialect.refusal(cause))).await
    }
}
