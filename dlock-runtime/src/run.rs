//! The one future that the macro builds: acquire, run the body in place, release.
//!
//! Written by hand because an `async fn` would keep a second copy of the body. Dropped in the order of its fields: the
//! body, and what it owns, goes before the lock does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::guard::{Guard, finish};
use crate::key::KeyBuf;
use crate::locker::{Ask, acquire};
use crate::registry::Registry;
use crate::scope;
use crate::sites::{Place, Site};

/// How an annotated call went; [`LockReturn`] makes the function's return value of it.
#[doc(hidden)]
#[derive(Debug)]
pub enum Ran<T> {
    /// The body ran, and the lock was ours until it had ended.
    Done(T),
    /// The body did not run.
    NotRun(Error),
    /// The lock was lost; the body's output, if it had come to its end.
    Lost(Error, Option<T>),
}

/// A return type that can carry the lock's error.
#[diagnostic::on_unimplemented(
    message = "a locked function must be able to return the lock's error, and `{Self}` cannot",
    label = "cannot carry a `dlock::Error`",
    note = "return `Result<T, E>` with an `E: From<dlock::Error>`: `Result<T, dlock::Error>`, `Box<dyn std::error::Error + Send + Sync>`, or your own error",
    note = "for your own error write `impl From<dlock::Error> for YourError`"
)]
pub trait LockReturn: Sized {
    /// Makes the return value.
    #[doc(hidden)]
    fn from_ran(ran: Ran<Self>) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> LockReturn for Result<T, E> {
    fn from_ran(ran: Ran<Self>) -> Self {
        match ran {
            Ran::Done(output) => output,
            // If the body itself has failed, its error wins; the loss was told as an event.
            Ran::Lost(_, Some(Err(error))) => Err(error),
            Ran::NotRun(error) | Ran::Lost(error, _) => Err(error.into()),
        }
    }
}

/// Acquires the site's lock on `key`, runs `body`, releases.
#[doc(hidden)]
pub fn run<F: Future>(site: &'static Site, key: KeyBuf, body: F) -> Run<F> {
    let ask = Ask {
        registry: Registry::global().clone(),
        place: Place::Site(site),
        options: site.options,
        backend: site.spec.backend.map(Into::into),
        key,
    };
    Run { body: Some(body), stage: Stage::Acquiring(acquire(ask)) }
}

pin_project_lite::pin_project! {
    /// See [`run`].
    #[doc(hidden)]
    #[must_use = "a future does nothing until it is awaited"]
    pub struct Run<F: Future> {
        #[pin]
        body: Option<F>,
        stage: Stage<F::Output>,
    }
}

enum Stage<T> {
    Acquiring(BoxFuture<'static, Result<Guard>>),
    Body(Guard),
    Releasing(BoxFuture<'static, Result<()>>, Option<T>),
    Ended,
}

impl<F: Future> Run<F> {
    pub(crate) fn holding(guard: Guard, body: F) -> Self {
        Self { body: Some(body), stage: Stage::Body(guard) }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Ran<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage {
                Stage::Acquiring(acquiring) => match ready!(acquiring.as_mut().poll(cx)) {
                    Ok(guard) => *this.stage = Stage::Body(guard),
                    Err(error) => {
                        this.body.set(None);
                        *this.stage = Stage::Ended;
                        return Poll::Ready(Ran::NotRun(error));
                    }
                },
                Stage::Body(guard) => {
                    // Before every step of the body, also the first: the grant may be old by now.
                    let mut lost = guard.check().err();
                    let mut output = None;
                    if lost.is_none() {
                        output = scope::within(Some(guard.0.clone()), || {
                            let output = this.body.as_mut().as_pin_mut().map(|body| body.poll(cx));
                            let Some(Poll::Ready(output)) = output else { return None };
                            this.body.set(None);
                            Some(output)
                        });
                        lost = match output {
                            Some(_) => guard.check().err(),
                            // Only a body that waits has somebody to wake.
                            None => match guard.0.poll_lost(cx) {
                                Poll::Pending => return Poll::Pending,
                                Poll::Ready(loss) => Some(loss),
                            },
                        };
                    }
                    if let Some(loss) = lost {
                        scope::within(Some(guard.0.clone()), || this.body.set(None));
                        // The guard hands over to our thread: the caller shall not wait for a store that is silent.
                        *this.stage = Stage::Ended;
                        return Poll::Ready(Ran::Lost(loss, output));
                    }
                    let Stage::Body(guard) = std::mem::replace(this.stage, Stage::Ended) else { continue };
                    *this.stage = Stage::Releasing(Box::pin(finish(guard)), output);
                }
                Stage::Releasing(releasing, output) => {
                    let released = ready!(releasing.as_mut().poll(cx));
                    let output = output.take();
                    *this.stage = Stage::Ended;
                    return Poll::Ready(match (released, output) {
                        (Ok(()), Some(output)) => Ran::Done(output),
                        (Ok(()), None) => return Poll::Pending,
                        (Err(loss), output) => Ran::Lost(loss, output),
                    });
                }
                // Polled after its end, which no executor does.
                Stage::Ended => return Poll::Pending,
            }
        }
    }
}
