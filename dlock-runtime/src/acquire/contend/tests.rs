//! A case that a test from outside cannot hit: a hold is passed on and ends between two looks at the clock.

use dlock_contract::Clock;
use futures::FutureExt;
use futures::executor::block_on;

use super::*;
use crate::acquire::request::Request;
use crate::acquire::single::{Prepared, prepare};
use crate::options::{Cohort, Options};
use crate::site::{CallSite, Named};
use crate::{Key, Registry};
use dlock_memory::Memory;

fn member(registry: &Registry) -> Option<Acquisition> {
    // The remaining tokens are given without asking the store.
    let cohort = Some(Cohort { passes: 8, span: Some(Duration::from_secs(3600)) });
    let options = Options { cohort, wait: Some(Wait::Forever), ..Options::DEFAULT };
    let request = Request::new(registry.context().clone(), CallSite::Builder(Named::new("", "")), options, None);
    match prepare(request, &Key::text("k").into(), None).ok()? {
        Prepared::Asks(acquisition) => Some(acquisition),
        Prepared::Joins(_) | Prepared::OpensFirst(_) => None,
    }
}

#[test]
fn no_token_falls_after_a_grant_that_came_too_late() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    registry.set_default("memory").unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let first = block_on(member(&registry).unwrap().run()).unwrap();
    let mut second = member(&registry).unwrap();
    let mut third = Box::pin(member(&registry).unwrap().run());
    {
        let mut turn = Box::pin(second.join());
        assert!(turn.poll_unpin(&mut context).is_pending());
        assert!(third.poll_unpin(&mut context).is_pending());
        block_on(first.release()).unwrap();
        // At once, because a wait queue with another order would be waited for without end.
        let turn = turn.now_or_never().expect("the second one is next").unwrap();
        second.turn = Some(turn);
    }
    let Some(Received::Hold(late)) = second.take_over() else { panic!("it was passed on") };
    clock.advance(Duration::from_secs(31));
    assert!(block_on(second.accept(late)).is_none());
    let Ok(Attempt::Acquired(hold)) = block_on(second.attempt()).unwrap() else { panic!("the lock is free") };
    let second = second.begin(hold, Duration::ZERO).unwrap().expect("it has the turn");
    let token = second.fence().unwrap().get();
    block_on(second.release()).unwrap();
    let third = block_on(third).unwrap();
    assert!(third.fence().unwrap().get() > token);
}
