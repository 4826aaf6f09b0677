//! The callers: what they do with their locks, as users would, and what they see.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Key};
use dlock_runtime::{Cohort, Held, OnLost, Registry, Renew, Wait};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::history::{End, Failure, Terms, What};
use crate::plan::{Fate, Form, PlannedCall, Step};
use crate::store::nanos;
use crate::world::{ProcessClock, Shared};

/// The state that the callers of one process share.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) world: Shared,
    pub(crate) process: u32,
    pub(crate) clock: ProcessClock,
    pub(crate) registry: Registry,
    pub(crate) ttl: Duration,
    /// Whether the store has tokens for holds that are passed on.
    pub(crate) passes: bool,
    /// The call and those inside of it: they stand still together.
    pub(crate) family: Rc<RefCell<Vec<u32>>>,
    /// The locks of the bodies around.
    pub(crate) around: Vec<u32>,
    pub(crate) bodies: Bodies,
}

/// The bodies of a process that have begun and not ended, with their last noted belief.
pub(crate) type Bodies = Rc<RefCell<BTreeMap<u32, (Held, u64)>>>;

impl Caller {
    /// Makes these calls, one after another.
    pub(crate) async fn run(self, calls: Vec<PlannedCall>) {
        for call in calls {
            self.sleep(call.pause).await;
            if self.world.with(|world| world.is_calm()) {
                return;
            }
            Self { family: Rc::default(), ..self.clone() }.call(call).await;
        }
    }

    /// Until when the process believes that a body has its lock; the present if it does not.
    fn believes_until(&self, held: &Held) -> u64 {
        let now = self.world.with(|world| world.now);
        held.believed_until().map_or(now, |until| self.clock.world(until))
    }

    /// Notes what the process believes of bodies that do not act now.
    pub(crate) fn note_beliefs(&self) {
        for (id, (held, noted)) in &mut *self.bodies.borrow_mut() {
            let until = self.believes_until(held);
            // Of a lock that is lost it is noted once.
            if until != *noted && (held.believed_until().is_some() || *noted > until) {
                *noted = until;
                self.world.add(self.process, *id, What::Believes { until });
            }
        }
    }

    async fn sleep(&self, time: Duration) {
        let clock = &self.clock.clock;
        clock.sleep_until(clock.now().after(time)).await;
    }

    fn call(self, planned: PlannedCall) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let id = self.world.with(|world| {
                world.last_call += 1;
                world.last_call
            });
            self.family.borrow_mut().push(id);
            let runs = matches!(planned.form, Form::Run | Form::RunOn);
            let terms = Terms {
                waits: nanos(planned.wait),
                lease: nanos(self.ttl),
                cancels: planned.form == Form::Run,
                limited: runs && planned.limit().is_some(),
                inside_itself: self.around.contains(&planned.key),
            };
            self.world.add(self.process, id, What::Asks { key: planned.key, terms });
            let mut answers = Answers { caller: self.clone(), id, answered: false };
            let fate = planned.fate;
            let call = Fated {
                call: Some(Box::pin(self.clone().locked(id, planned))),
                fate,
                polls: 0,
                sleep: None,
                caller: self,
            };
            // Else it was dropped, or its body has panicked.
            if let Ok(Some(answer)) = AssertUnwindSafe(call).catch_unwind().await {
                answers.answer(answer.map_err(|error| failure(&error)));
            }
        })
    }

    /// The call itself.
    async fn locked(self, id: u32, planned: PlannedCall) -> Result<(), Error> {
        let wait = if planned.wait.is_zero() { Wait::None } else { Wait::UpTo(planned.wait) };
        let mut lock = self.registry.lock(key(planned.key)).ttl(self.ttl).wait(wait);
        if !planned.renewed {
            lock = lock.renew(Renew::Off);
        }
        if planned.cohort && planned.renewed && self.passes {
            lock = lock.cohort(Some(Cohort { passes: 4, span: None }));
        }
        match planned.form {
            Form::Run | Form::RunOn => {
                if let Some(timeout) = planned.limit() {
                    lock = lock.timeout(timeout);
                }
                let on_lost = if planned.form == Form::Run { OnLost::Cancel } else { OnLost::Continue };
                lock.on_lost(on_lost).run(|held| self.body(id, held, planned)).await
            }
            Form::Guard | Form::DroppedGuard => {
                let guard = lock.acquire().await?;
                let is_released = planned.form == Form::Guard;
                self.body(id, Held::clone(&guard), planned).await;
                let checked = guard.check();
                if is_released { guard.release().await } else { checked }
            }
        }
    }

    fn body(&self, id: u32, held: Held, planned: PlannedCall) -> Body {
        let mut inner = self.clone();
        if let Form::Run | Form::RunOn = planned.form {
            inner.around.push(planned.key);
        }
        let steps = Box::pin(inner.steps(planned));
        Body { caller: self.clone(), id, held, steps, state: BodyState::New }
    }

    async fn steps(self, planned: PlannedCall) {
        for step in planned.steps {
            match step {
                Step::Sleeps(time) => self.sleep(time).await,
                Step::Computes(time) => self.world.with(|world| world.compute(self.process, time)),
                Step::Nested(call) => self.clone().call(*call).await,
            }
        }
        if planned.fate == Fate::Panics {
            // Without the panic's message.
            resume_unwind(Box::new("planned"));
        }
    }
}

fn key(number: u32) -> Key {
    Key::text(["a", "b"][number as usize % 2])
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Busy => Failure::Busy,
        ErrorKind::WaitTimeout => Failure::WaitTimeout,
        ErrorKind::Outage => Failure::Outage,
        ErrorKind::Lost(_) => Failure::Lost,
        ErrorKind::BodyTimeout => Failure::BodyTimeout,
        ErrorKind::WouldDeadlock => Failure::WouldDeadlock,
        ErrorKind::ShutDown => Failure::ShutDown,
        _ => Failure::Other,
    }
}

/// Notes the answer of a call, or that it was given up.
struct Answers {
    caller: Caller,
    id: u32,
    answered: bool,
}

impl Answers {
    fn answer(&mut self, answer: Result<(), Failure>) {
        self.answered = true;
        self.caller.world.add(self.caller.process, self.id, What::Answers(answer));
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if !self.answered {
            self.caller.world.add(self.caller.process, self.id, What::GivenUp);
        }
    }
}

/// A call with its fate: it may be dropped at any await, or not be polled for a while.
struct Fated {
    call: Option<LocalBoxFuture<'static, Result<(), Error>>>,
    fate: Fate,
    polls: u32,
    sleep: Option<LocalBoxFuture<'static, ()>>,
    caller: Caller,
}

impl Future for Fated {
    type Output = Option<Result<(), Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(sleep) = &mut this.sleep {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.sleep = None;
            if let Fate::UnpolledAndDropped(..) = this.fate {
                this.call = None;
                return Poll::Ready(None);
            }
        }
        let Some(call) = &mut this.call else { return Poll::Ready(None) };
        if let Poll::Ready(answer) = call.as_mut().poll(cx) {
            // The future of a call is dropped when it is over, and not later.
            this.call = None;
            return Poll::Ready(Some(answer));
        }
        this.polls += 1;
        match this.fate {
            Fate::Dropped(polls) if polls == this.polls => {
                this.call = None;
                return Poll::Ready(None);
            }
            Fate::Unpolled(polls, time) | Fate::UnpolledAndDropped(polls, time) if polls == this.polls => {
                let caller = this.caller.clone();
                let wakes = caller.clock.clock.now().after(time);
                let until = caller.clock.world(wakes);
                for call in &*caller.family.borrow() {
                    caller.world.add(caller.process, *call, What::Stands { until });
                }
                this.sleep = Some(Box::pin(async move { caller.clock.clock.sleep_until(wakes).await }));
                cx.waker().wake_by_ref();
            }
            _ => {}
        }
        Poll::Pending
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyState {
    New,
    Begun,
    Ended,
}

/// A body. It notes what its process believes whenever it acts.
struct Body {
    caller: Caller,
    id: u32,
    held: Held,
    steps: LocalBoxFuture<'static, ()>,
    state: BodyState,
}

impl Body {
    fn add(&self, what: What) {
        self.caller.world.add(self.caller.process, self.id, what);
    }
}

impl Future for Body {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.state == BodyState::New {
            self.state = BodyState::Begun;
            let token = self.held.fence().ok().map(|fence| fence.get());
            self.add(What::Begins { token });
        }
        let until = self.caller.believes_until(&self.held);
        self.add(What::Acts { until });
        self.caller.bodies.borrow_mut().insert(self.id, (self.held.clone(), until));
        let polled = self.steps.as_mut().poll(cx);
        if polled.is_ready() {
            self.state = BodyState::Ended;
            self.caller.bodies.borrow_mut().remove(&self.id);
            self.add(What::Ends(End::Done));
        }
        polled
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.state == BodyState::Begun {
            self.caller.bodies.borrow_mut().remove(&self.id);
            self.add(What::Ends(if std::thread::panicking() { End::Panicked } else { End::Dropped }));
        }
    }
}
