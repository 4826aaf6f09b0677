//! The requests to a session. A request runs in the session's task to its end, whether its caller still waits or not: one that
//! is cut off in the middle would end the session, and with it the locks of others.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Mode, Result};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::context::NamedContext;
use super::dialect::NamedDialect;
use super::drive::{SessionRequest, Tell};
use super::failure::{AfterRequest, Answered, Ended, Failure};
use super::name::LockName;
use super::shared_session::SharedSession;
use crate::connection::answer::Retries;
use crate::connection::misread::unless_misread;
use crate::connection::session::refused;
use crate::dialect::{Answer, Refusal, Value};
use crate::tables::words::Statement;

impl<D: NamedDialect> SharedSession<D> {
    /// Asks the server for something, and waits for the answer. A caller who goes away before the request has begun withdraws
    /// it.
    pub(super) async fn ask<T, R>(&self, request: R) -> Answered<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a NamedContext<D>, &'a mut D::Conn) -> BoxFuture<'a, sqlx::Result<T>> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.push(
            Duration::ZERO,
            Box::new(move |context, conn| {
                Box::pin(async move {
                    if sender.is_closed() {
                        return (AfterRequest::KeepSession, nobody());
                    }
                    let (answer, after) = judged(context, unless_misread(request(context, conn)).await);
                    (after, telling(sender, answer))
                })
            }),
        );
        receiver.await.unwrap_or_else(|_| Err(self.shared.failure()))
    }

    /// Asks for a lock, without waiting or for at most this long, by a request that says how the session goes on. If
    /// the caller goes away during a wait, the session ends, which has no other lock then. If the caller goes away
    /// otherwise, a grant is dropped. `kept` lives until all is done. The request is sent at once, so a waiter is in
    /// the server's queue before anybody polls this.
    pub(super) fn lock<T, R, K>(
        &self,
        wait: Duration,
        kept: K,
        request: R,
    ) -> impl Future<Output = Answered<T>> + Send + use<D, T, R, K>
    where
        K: Send + 'static,
        T: Send + 'static,
        R: for<'a> FnOnce(&'a NamedContext<D>, &'a mut D::Conn) -> BoxFuture<'a, Ended<T>> + Send + 'static,
    {
        let (mut sender, receiver) = oneshot::channel();
        self.push(
            wait,
            Box::new(move |context, conn| {
                Box::pin(async move {
                    if sender.is_closed() {
                        return (AfterRequest::KeepSession, nobody());
                    }
                    let (answer, after) = match wait.is_zero() {
                        true => readable(request(context, conn)).await,
                        false => tokio::select! {
                            done = readable(request(context, conn)) => done,
                            // The end of the session is noted before `kept` goes.
                            () = sender.closed() => return (AfterRequest::EndSession, Box::new(move || drop(kept))),
                        },
                    };
                    (after, telling_and_dropping(sender, answer, kept))
                })
            }),
        );
        let shared = self.shared.clone();
        async move { receiver.await.unwrap_or_else(|_| Err(shared.failure())) }
    }

    /// Asks the server to free a lock. It is done whether anybody waits for it or not; `kept` lives until then, and
    /// `told` gets the server's answer, if there is one. The session ends if the server does not say that the lock is
    /// free.
    pub(super) fn unlock<K, T>(
        &self,
        lock: &LockName,
        mode: Mode,
        kept: K,
        told: T,
    ) -> impl Future<Output = Answered<bool>> + Send + use<D, K, T>
    where
        K: Send + 'static,
        T: FnOnce(bool) + Send + 'static,
    {
        let (lock, shared) = (lock.clone(), self.shared.clone());
        self.ask_in_any_case((), move |context, conn| {
            Box::pin(async move {
                let (answer, mut after) =
                    judged(context, unless_misread(context.dialect.unlock(conn, &lock, mode)).await);
                if after == AfterRequest::KeepSession && !matches!(answer, Ok(true)) {
                    after = AfterRequest::EndSession;
                }
                if let Ok(freed) = answer {
                    told(freed);
                }
                // Before `kept` is dropped: an abandon waits for that drop, and must then find the end noted.
                context.left_sessions.note_end(&shared, after);
                drop(kept);
                (answer, after)
            })
        })
    }

    /// Asks the server for something that is done whether anybody waits for it or not, by a request that says how the session
    /// goes on. `kept` lives until all is done.
    pub(super) fn ask_in_any_case<T, R, K>(
        &self,
        kept: K,
        request: R,
    ) -> impl Future<Output = Answered<T>> + Send + use<D, T, R, K>
    where
        K: Send + 'static,
        T: Send + 'static,
        R: for<'a> FnOnce(&'a NamedContext<D>, &'a mut D::Conn) -> BoxFuture<'a, Ended<T>> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.push(
            Duration::ZERO,
            Box::new(move |context, conn| {
                Box::pin(async move {
                    let (answer, after) = readable(request(context, conn)).await;
                    (after, telling_and_dropping(sender, answer, kept))
                })
            }),
        );
        let shared = self.shared.clone();
        async move { receiver.await.unwrap_or_else(|_| Err(shared.failure())) }
    }

    /// Asks the server whether the session lives. It then has all of its locks. `None`: it has ended.
    pub(super) async fn confirm(&self) -> Result<Option<BootInstant>> {
        let (mut heard, mut ended) = (self.shared.heard.subscribe(), self.ended());
        let round = {
            let mut state = self.shared.state();
            let round = heard.borrow_and_update().round;
            let is_asked = std::mem::replace(&mut state.is_asked, true);
            // The request takes the state when it is answered.
            drop(state);
            if !is_asked {
                self.push(Duration::ZERO, self.question());
            }
            round
        };
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Ok(None),
            heard = heard.wait_for(|heard| heard.round > round) => match heard {
                Err(_) => Ok(None),
                Ok(heard) => match &heard.refused {
                    None => Ok(Some(heard.at)),
                    Some(error) => Err(error.again()),
                },
            },
        }
    }

    fn question(&self) -> SessionRequest<D> {
        let shared = self.shared.clone();
        Box::new(move |context, conn| {
            Box::pin(async move {
                let from = context.clock.now();
                let (answer, mut after) = judged(context, unless_misread(context.dialect.who_answers(conn)).await);
                let mut state = shared.state();
                state.is_asked = false;
                let refused = match answer {
                    Ok(number) if number == shared.id.number => None,
                    Ok(_) => {
                        after = AfterRequest::EndConnection;
                        None
                    }
                    Err(failure) => Some(Arc::new(failure.error)),
                };
                if after == AfterRequest::KeepSession {
                    shared.heard.send_modify(|heard| {
                        heard.round += 1;
                        if refused.is_none() {
                            heard.at = from;
                        }
                        heard.refused = refused;
                    });
                }
                drop(state);
                (after, nobody())
            })
        })
    }
}

fn telling<T: Send + 'static>(sender: oneshot::Sender<T>, answer: T) -> Tell {
    // The caller may be gone.
    Box::new(move || drop(sender.send(answer)))
}

/// A grant that nobody hears of is freed by a request of its own, which has begun when `kept` goes.
fn telling_and_dropping<T: Send + 'static>(sender: oneshot::Sender<T>, answer: T, kept: impl Send + 'static) -> Tell {
    Box::new(move || {
        drop(sender.send(answer));
        drop(kept);
    })
}

fn nobody() -> Tell {
    Box::new(|| ())
}

pub(super) fn judged<D: NamedDialect, T>(context: &NamedContext<D>, answer: sqlx::Result<T>) -> Ended<T> {
    match answer {
        Ok(answer) => (Ok(answer), AfterRequest::KeepSession),
        Err(error) => {
            let is_over = context.dialect.refusal(&error) == Refusal::SessionEnded;
            let error = refused(&context.dialect, error);
            let by_server = is_over && error.code().is_some();
            let after = match (is_over, by_server) {
                (false, _) => AfterRequest::KeepSession,
                (true, false) => AfterRequest::EndSession,
                (true, true) => AfterRequest::EndedByServer,
            };
            (Err(Failure { error, is_over, by_server }), after)
        }
    }
}

/// A request that says how the session goes on. An answer on which the client library panics ends the session, and that is noted
/// before anything goes that the request keeps. The panic must not come out of the task: a caller may be polling it.
async fn readable<T>(request: impl Future<Output = Ended<T>>) -> Ended<T> {
    let misread = |error| (Err(Failure::ended_by(error)), AfterRequest::EndSession);
    unless_misread(async { Ok::<_, Error>(request.await) }).await.unwrap_or_else(misread)
}

/// Runs one statement, and again if the server undid it.
pub(super) async fn run<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    statement: &Statement,
    values: &[Value<'_>],
) -> sqlx::Result<Answer> {
    let mut retries = Retries::new();
    loop {
        let answer = context.dialect.run(conn, statement, values).await;
        let refusal = answer.as_ref().err().map(|error| context.dialect.refusal(error));
        if !retries.again(&context.clock, &context.collisions, refusal).await {
            return answer;
        }
    }
}
