//! The one future that the macro builds: acquire, run the body in place, release.
//!
//! The body has a box of its own. Otherwise the future would keep a large argument of the function three times. The
//! fields are dropped in order: the body, and all that it owns, goes before the lock.

use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{self, Context, Poll};
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::engine::simulation::planted;
use futures::future::BoxFuture;

use crate::acquire::of_this_process::Acquiring;
use crate::acquire::request::Request;
use crate::acquire::several::acquire_all;
use crate::acquire::thread_registry;
use crate::api::key_of;
use crate::api::outcome::Ran;
use crate::guard::guard_set::{Guards, finish_all};
use crate::guard::scope;
use crate::options::{OnLost, Options};
use crate::site::{Call, Site};

/// Acquires the site's locks, runs `body`, releases.
#[doc(hidden)]
pub fn run<F: Future>(site: &'static Site, call: Call, body: F) -> Run<F> {
    let (bounds, acquiring) = request(site, call);
    Run::new(bounds, body, Stage::Acquiring(acquiring))
}

/// The first half of [`run`], for a function that does something else when it cannot have its locks.
#[doc(hidden)]
pub fn begin(site: &'static Site, call: Call) -> impl Future<Output = Result<Guards>> + Send + Unpin {
    request(site, call).1
}

/// Starts the acquisition. The settings of this call go to it and to the body.
fn request(site: &'static Site, call: Call) -> (Bounds, Acquiring<Guards>) {
    if let Some(stop) = key_of::note_key(site, &call.keys) {
        return (Bounds::of(&site.options), Acquiring::new(ready(Err(stop))));
    }
    let request = Request::of_site(site, &call);
    (Bounds::of(&request.options), acquire_all(request, call.keys))
}

/// The second half of [`run`].
#[doc(hidden)]
pub fn hold<F: Future>(site: &'static Site, guards: Guards, body: F) -> Run<F> {
    Run::holding(&thread_registry::here().tuned(site.name, site.options), guards, body)
}

/// See [`run`].
#[doc(hidden)]
#[must_use = "a future does nothing until it is awaited"]
pub struct Run<F: Future> {
    body: Option<Pin<Box<F>>>,
    limit: Option<BoxFuture<'static, ()>>,
    stage: Stage<F::Output>,
    /// Whether the body was polled.
    begun: bool,
    bounds: Bounds,
    /// Whether the body succeeded; `None` if the output does not show it.
    judge: Option<fn(&F::Output) -> bool>,
}

/// The events that may end the body early.
#[derive(Clone, Copy)]
struct Bounds {
    on_lost: OnLost,
    timeout: Option<Duration>,
}

impl Bounds {
    const fn of(options: &Options) -> Self {
        Self { on_lost: options.on_lost, timeout: options.timeout }
    }
}

// The body is in a box, and nothing else is ever pinned.
impl<F: Future> Unpin for Run<F> {}

enum Stage<T> {
    Acquiring(Acquiring<Guards>),
    Body(Guards),
    /// With the body's output, or the error of its limit.
    Releasing(BoxFuture<'static, Result<()>>, Option<Result<T>>),
    Ended,
}

impl<F: Future> Run<F> {
    fn new(bounds: Bounds, body: F, stage: Stage<F::Output>) -> Self {
        Self { body: Some(Box::pin(body)), limit: None, stage, begun: false, bounds, judge: None }
    }

    pub(crate) fn holding(options: &Options, guards: Guards, body: F) -> Self {
        let mut run = Self::new(Bounds::of(options), body, Stage::Ended);
        run.start(guards);
        run
    }

    fn start(&mut self, guards: Guards) {
        self.limit = self.bounds.timeout.map(|timeout| {
            let shared = guards.innermost().shared.clone();
            let end = shared.clock.now().after(timeout);
            Box::pin(async move { shared.clock.sleep_until(end).await }) as BoxFuture<'static, ()>
        });
        self.stage = Stage::Body(guards);
    }

    /// Sets how the output of a run shows whether it succeeded.
    #[doc(hidden)]
    pub fn judged_by(mut self, judge: fn(&F::Output) -> bool) -> Self {
        self.judge = Some(judge);
        self
    }

    /// Runs the body as far as it goes. The guards stay in their place meanwhile: in a panic the body is dropped first.
    fn step(&mut self, cx: &mut Context<'_>) -> Step<F::Output> {
        let Self { body, limit, stage, begun, bounds, .. } = self;
        let Stage::Body(guards) = stage else { return Step::Waits };
        // Another caller polls it, such as the task of a `Shared` future. Whatever `on_lost` says, the body does not go on there.
        if let Err(loss) = guards.check_inside() {
            *body = None;
            return Step::Lost(loss, None);
        }
        // Values that the body owns may look for its lock when they are dropped.
        let scoped = |work: &mut dyn FnMut()| scope::within(guards.holds(), work);
        let cancels = bounds.on_lost == OnLost::Cancel;
        // Checked before every step, also the first: the grant may have expired, and no body begins without its lock.
        let lost = if planted("no check before a body") { None } else { guards.check().err() };
        if let Some(loss) = lost
            && (cancels || !*begun)
        {
            scoped(&mut || *body = None);
            return Step::Lost(loss, None);
        }
        *begun = true;
        let mut output = None;
        let poll = || {
            if let Some(Poll::Ready(done)) = body.as_mut().map(|body| body.as_mut().poll(cx)) {
                *body = None;
                output = Some(done);
            }
        };
        guards.inside(poll);
        if let Some(output) = output {
            return match guards.check() {
                Ok(()) => Step::Done(output),
                Err(_) if planted("no check after a body") => Step::Done(output),
                Err(loss) => Step::Lost(loss, Some(output)),
            };
        }
        // Register for loss only while the body is pending.
        if cancels && let Poll::Ready(loss) = guards.poll_lost(cx) {
            scoped(&mut || *body = None);
            return Step::Lost(loss, None);
        }
        if let Some(limit) = limit
            && limit.as_mut().poll(cx).is_ready()
        {
            scoped(&mut || *body = None);
            return Step::TimedOut;
        }
        Step::Waits
    }

    /// From the body to the release.
    fn release(&mut self, output: Result<F::Output>) {
        let Stage::Body(guards) = std::mem::replace(&mut self.stage, Stage::Ended) else { return };
        let succeeded = output.as_ref().map_or(Some(false), |output| self.judge.map(|judge| judge(output)));
        guards.note_run(succeeded);
        self.stage = Stage::Releasing(Box::pin(finish_all(guards)), Some(output));
    }

    /// Whether the body has ended, and the release has not.
    pub(crate) const fn is_releasing(&self) -> bool {
        matches!(self.stage, Stage::Releasing(..))
    }

    fn timed_out(&self) -> Error {
        let text = format!("the body took longer than its timeout of {:?}", self.bounds.timeout.unwrap_or_default());
        match &self.stage {
            Stage::Body(guards) => guards.innermost().error(ErrorKind::BodyTimeout, text),
            _ => Error::new(ErrorKind::BodyTimeout, text),
        }
    }
}

impl<F: Future> Drop for Run<F> {
    /// The body of a cancelled call is dropped in its scope, and the guards after it. Another task's panic may be the
    /// reason, so the drop says nothing about the body's success.
    fn drop(&mut self) {
        let Stage::Body(guards) = &self.stage else { return };
        if guards.check_inside().is_ok() {
            scope::within(guards.holds(), || self.body = None);
        }
        self.body = None;
        if let Stage::Body(guards) = std::mem::replace(&mut self.stage, Stage::Ended) {
            guards.give_back();
        }
    }
}

/// How far the body came.
enum Step<T> {
    Waits,
    Done(T),
    Lost(Error, Option<T>),
    TimedOut,
}

impl<F: Future> Future for Run<F> {
    type Output = Ran<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::Acquiring(acquiring) => match task::ready!(Pin::new(acquiring).poll(cx)) {
                    Ok(guards) => this.start(guards),
                    Err(error) => {
                        this.body = None;
                        this.stage = Stage::Ended;
                        return Poll::Ready(Ran::Failed(error));
                    }
                },
                Stage::Body(_) => match this.step(cx) {
                    Step::Waits => return Poll::Pending,
                    Step::Done(output) => this.release(Ok(output)),
                    Step::TimedOut => {
                        let error = this.timed_out();
                        this.release(Err(error));
                    }
                    Step::Lost(loss, output) => {
                        // The guards hand over to our thread, so that the caller does not wait for a silent store.
                        this.stage = Stage::Ended;
                        return Poll::Ready(Ran::Lost(loss, output));
                    }
                },
                Stage::Releasing(releasing, output) => {
                    let released = task::ready!(releasing.as_mut().poll(cx));
                    let output = output.take();
                    this.stage = Stage::Ended;
                    return match (released, output) {
                        (_, Some(Err(error))) => Poll::Ready(Ran::Failed(error)),
                        (Ok(()), Some(Ok(output))) => Poll::Ready(Ran::Done(output)),
                        (Err(loss), Some(Ok(output))) => Poll::Ready(Ran::Lost(loss, Some(output))),
                        (_, None) => Poll::Pending,
                    };
                }
                // Polled after its end, which no executor does.
                Stage::Ended => return Poll::Pending,
            }
        }
    }
}
