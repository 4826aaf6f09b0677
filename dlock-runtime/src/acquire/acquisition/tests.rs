//! A case that a test from outside cannot hit: a caller loses its turn between two steps of one poll.

use dlock_contract::Attempt;
use dlock_store::Clock;
use futures::FutureExt;
use futures::executor::block_on;

use super::*;
use crate::acquire::request::Request;
use crate::acquire::single::{Prepared, prepare};
use crate::acquire::unpolled::undo;
use crate::options::{Cohort, Options, Wait};
use crate::site::{CallSite, Named};
use crate::{Key, Registry};
use dlock_memory::Memory;

fn member(registry: &Registry) -> Acquisition {
    // The remaining tokens are given without asking the store.
    let cohort = Some(Cohort { passes: 8, span: Some(Duration::from_secs(3600)) });
    let options = Options { cohort, wait: Some(Wait::Forever), ..Options::DEFAULT };
    let request = Request::new(registry.context().clone(), CallSite::Builder(Named::new("", "")), options, None);
    match prepare(request, &Key::text("k").into(), None).unwrap() {
        Prepared::Asks(acquisition) => acquisition,
        Prepared::Joins(_) | Prepared::OpensFirst(_) => panic!("nothing is held"),
    }
}

/// The hold that was passed on to it goes back, and its next one is its own: with tokens that rise, also for those behind it.
#[test]
fn no_token_falls_after_a_caller_has_lost_its_turn_with_the_hold() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    registry.set_default("memory").unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let first = block_on(member(&registry).run()).unwrap();
    let mut second = member(&registry);
    let mut third = Box::pin(member(&registry).run());
    {
        let mut turn = Box::pin(second.join());
        assert!(turn.poll_unpin(&mut context).is_pending());
        assert!(third.poll_unpin(&mut context).is_pending());
        block_on(first.release()).unwrap();
        // At once, because a wait queue with another order would be waited for without end.
        let turn = turn.now_or_never().expect("the second one is next").unwrap();
        second.turn = Some(turn);
    }
    let Some(Ok(Attempt::Acquired(passed))) = second.take_over() else { panic!("it was passed on") };
    let looks = |at| undo(&second.store, second.store.queue.pass_over(&second.lock, at));
    looks(clock.now());
    looks(clock.now().after(Duration::from_secs(10)));
    assert!(second.begin(passed).unwrap().is_none(), "the turn is lost");
    // Its own next request, as it makes it once the turn is its own again.
    drop(third);
    let Ok(Attempt::Acquired(hold)) = block_on(second.join_anew()).unwrap() else { panic!("the passed hold is gone") };
    let mut third = Box::pin(member(&registry).run());
    let second = second.begin(hold).unwrap().expect("it has the turn");
    assert!(third.poll_unpin(&mut context).is_pending());
    let token = second.fence().unwrap().get();
    block_on(second.release()).unwrap();
    let third = third.now_or_never().expect("it was passed on").unwrap();
    assert!(third.fence().unwrap().get() > token);
}
