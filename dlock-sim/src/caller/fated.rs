//! A call with its fate, and its answer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{AbortHandle, LocalBoxFuture, abortable};
use tokio::sync::oneshot;

use super::Caller;
use crate::history::{Failure, What};
use crate::plan::{Fate, Lives};

/// Notes the answer of a call, or that it was given up.
pub(super) struct Answers {
    pub(super) caller: Caller,
    pub(super) id: u32,
    pub(super) answered: bool,
}

impl Answers {
    pub(super) fn answer(&mut self, answer: Result<(), Failure>) {
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

/// A call that is not polled for longer has lost what it has not taken up.
const UNPOLLED_FOR_LONG: Duration = Duration::from_secs(26);

/// A call that another task may poll.
type Call = LocalBoxFuture<'static, Result<(), Failure>>;

/// A call in the hands of a stranger. It ends with this.
pub(super) struct Handed {
    call: AbortHandle,
    answer: oneshot::Receiver<Result<(), Failure>>,
}

impl Handed {
    /// Gives a call to another task of the process.
    fn over(call: Call, caller: &Caller) -> Self {
        let (sender, answer) = oneshot::channel();
        let (polled, call) = abortable(call);
        caller.strangers.borrow_mut().push(Box::pin(async move {
            if let Ok(answer) = polled.await {
                let _ = sender.send(answer);
            }
        }));
        Self { call, answer }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.call.abort();
    }
}

/// A call with its fate: it may be dropped at any await, or not be polled for a while.
pub(super) struct Fated {
    pub(super) call: Option<Call>,
    pub(super) handed: Option<Handed>,
    pub(super) fate: Fate,
    pub(super) polls: u32,
    pub(super) sleep: Option<LocalBoxFuture<'static, ()>>,
    pub(super) caller: Caller,
}

impl Future for Fated {
    type Output = Option<Result<(), Failure>>;

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
        if let Some(handed) = &mut this.handed {
            // Without an answer its body has panicked.
            return Pin::new(&mut handed.answer).poll(cx).map(Result::ok);
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
            Fate::Handed(polls) if polls == this.polls => {
                this.handed = this.call.take().map(|call| Handed::over(call, &this.caller));
                cx.waker().wake_by_ref();
            }
            Fate::Unpolled(polls, time) | Fate::UnpolledAndDropped(polls, time) if polls == this.polls => {
                let caller = this.caller.clone();
                let wakes = caller.clock.clock.now().after(time);
                let until = caller.clock.world(wakes);
                for call in &*caller.family.borrow() {
                    caller.world.add(caller.process, *call, What::Stands { until });
                }
                let time = caller.clock.clock.now().after(UNPOLLED_FOR_LONG);
                if caller.offers.lives != Lives::Alone && wakes > time {
                    let bodies = caller.bodies.borrow();
                    let calls =
                        caller.family.borrow().iter().copied().filter(|call| !bodies.contains_key(call)).collect();
                    caller.world.with(|world| world.looks_whether_undone(caller.process, calls));
                }
                this.sleep = Some(Box::pin(async move { caller.clock.clock.sleep_until(wakes).await }));
                cx.waker().wake_by_ref();
            }
            _ => {}
        }
        Poll::Pending
    }
}
