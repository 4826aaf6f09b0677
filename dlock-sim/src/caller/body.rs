//! The body of a call: it notes what its process believes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dlock_runtime::Held;
use futures::future::LocalBoxFuture;

use super::{Caller, HeldKeys};
use crate::history::{End, Granted, What};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyState {
    New,
    Begun,
    Ended,
}

/// A body. It notes what its process believes whenever it acts.
pub(super) struct Body {
    pub(super) caller: Caller,
    pub(super) id: u32,
    pub(super) works: bool,
    pub(super) held: HeldKeys,
    pub(super) steps: LocalBoxFuture<'static, ()>,
    pub(super) state: BodyState,
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
            let token = |held: &Held| held.fence().ok().map(|fence| fence.get());
            if self.works {
                let work = self.held.iter().filter_map(|(key, held)| Some((*key, token(held)?)));
                self.caller.world.with(|world| world.worked.extend(work));
            }
            let granted = |(_, held): &(u32, Held)| Granted { token: token(held), slot: held.slot() };
            self.add(What::Begins { holds: self.held.iter().map(granted).collect() });
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
