//! Commits the transaction of a hold, and says whether that was done.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Hold, Result, Settle};
use futures::future::BoxFuture;

use super::aside::ask_aside;
use super::dialect::{Committed, RowDialect};
use super::held::HeldRow;
use super::life::{Life, Work};
use super::shared::RowShared;
use super::store::RowLock;
use crate::connection::answer::ANSWER_LIMIT;
use crate::connection::misread::unless_misread;
use crate::dialect::Refusal;

/// How long dlock asks the server for the outcome of a commit, and the pause between two questions.
const OUTCOME_TIMEOUT: Duration = Duration::from_millis(500);
const OUTCOME_POLL_PAUSE: Duration = Duration::from_millis(20);
/// The time limit for the requests before the commit. Together with the question about the outcome it is shorter than
/// the engine's limit. So if a cancelled statement has made the session useless, the error says that the commit was
/// never sent.
const BEFORE_COMMIT_TIMEOUT: Duration = Duration::from_secs(2);
pub(super) const ENDED: &str = "a statement of the body ended the transaction, and may have committed it";

impl<D: RowDialect> Settle for RowLock<D> {
    fn has_work(&self, hold: &Hold) -> bool {
        hold.session::<HeldRow<D>>().is_some_and(|held| held.note_work(Work::asked).has_begun())
    }

    fn settle<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let held = hold.shared_session::<HeldRow<D>>();
            let held = held.ok_or_else(|| refusal("the lock lives in no transaction of this store"))?;
            let shared = self.shared.clone();
            let settling = ask_aside(async move { shared.commit(&held).await })?;
            settling.await.unwrap_or_else(|_| Err(unknown("the task that commits has failed")))
        })
    }
}

impl<D: RowDialect> RowShared<D> {
    async fn commit(&self, held: &HeldRow<D>) -> Result<()> {
        let (clock, dialect) = (&self.context.clock, &self.context.dialect);
        // A renewal of ours may be under way, on a server that is slow.
        let Some(mut slot) = held.begin_end(clock, BEFORE_COMMIT_TIMEOUT).await else {
            return Err(refusal("its session is still in use, such as by a statement of the body on another task"));
        };
        // Behind this, a request that has not ended drops the connection.
        let Some(mut open) = slot.take() else { return Err(refusal("the transaction had ended before")) };
        let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let until = clock.now().after(BEFORE_COMMIT_TIMEOUT);
        let asking = clock.timeout_at(until, unless_misread(dialect.is_in(&mut open.conn, &held.id))).await;
        let is_answered = asking.is_some();
        match asking.ok_or_else(late).flatten() {
            Ok(true) => {}
            Ok(false) => return Err(self.ended_by_the_body(held).await),
            Err(error) => {
                // No commit of ours was sent, so the server rolls back. A `COMMIT RELEASE` of the body has ended the session too.
                let is_over =
                    is_answered && dialect.refusal(&error) == Refusal::SessionEnded && held.work().may_have_ended();
                let ended = if is_over { self.was_committed(held).await } else { Some(false) };
                let told = match ended {
                    Some(false) => refusal("its session had ended"),
                    _ => unknown("its session had ended, and a statement of the body may have committed it before"),
                };
                return Err(told.because(dialect.fault(error)));
            }
        }
        let until = clock.now().after(ANSWER_LIMIT);
        let committing = clock.timeout_at(until, unless_misread(dialect.commit(&mut open.conn, &held.id))).await;
        let error = match committing.ok_or_else(late).flatten() {
            Ok(committed @ (Committed::Clean | Committed::Marked)) => {
                held.advance(Life::Committed);
                if committed == Committed::Clean {
                    self.sessions.replace(open);
                }
                return Ok(());
            }
            Ok(Committed::Elsewhere) => {
                // The body's later work is undone: the session goes out of scope.
                held.end();
                return Err(self.ended_by_the_body(held).await);
            }
            Err(error) => error,
        };
        let kind = dialect.refusal(&error);
        self.context.collisions.note(kind);
        let error = dialect.fault(error);
        if kind != Refusal::SessionEnded {
            // The server has rolled back. The session is not used again: what it still has of ours is not known.
            held.end();
            let text = "the server refused the commit";
            return Err(refusal(text).because(error).with_retryable(kind == Refusal::Undone));
        }
        drop(open);
        match self.was_committed(held).await {
            Some(true) => {
                held.advance(Life::Committed);
                Ok(())
            }
            Some(false) => Err(refusal("its session ended before the commit").because(error)),
            None => Err(unknown("the session ended while the commit was under way").because(error)),
        }
    }

    /// The error where the transaction had ended before its commit. Its own statement may have committed it, such as one that
    /// changes a table's definition in MySQL.
    async fn ended_by_the_body(&self, held: &HeldRow<D>) -> Error {
        match self.outcome(held).await {
            Ok(Some(false)) => refusal("the transaction had ended before: a statement of the body ended it"),
            _ => unknown(ENDED),
        }
    }

    /// The outcome of a commit without an answer, if the server knows it. The server may still be executing the commit
    /// for a moment.
    async fn was_committed(&self, held: &HeldRow<D>) -> Option<bool> {
        let clock = &self.context.clock;
        let until = clock.now().after(OUTCOME_TIMEOUT);
        loop {
            match self.outcome(held).await {
                Ok(None) if clock.now() < until => clock.sleep_until(clock.now().after(OUTCOME_POLL_PAUSE)).await,
                answer => return answer.ok().flatten(),
            }
        }
    }

    /// Whether the transaction was committed; `None` if the server does not know, or not yet.
    async fn outcome(&self, held: &HeldRow<D>) -> Result<Option<bool>> {
        let asked =
            self.monitor.connection.ask(&held.id, |dialect, conn, id| Box::pin(dialect.was_committed(conn, id)));
        let (answer, server) = asked.await?;
        if server == *held.server { Ok(answer) } else { Err(unknown("another server answers by now")) }
    }
}

pub(super) fn refusal(why: &str) -> Error {
    Error::new(
        ErrorKind::CommitRefused,
        format!("nothing of the body's work stays, because its commit was refused: {why}"),
    )
}

pub(super) fn unknown(why: &str) -> Error {
    let text =
        format!("nobody knows whether the body's work was committed: {why}; look for it before you run the body again");
    Error::new(ErrorKind::CommitUnknown, text)
}
