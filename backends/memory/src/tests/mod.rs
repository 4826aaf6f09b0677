//! Tests of the store alone, on a manual clock.

mod modes;
mod runs;

use dlock_contract::{Signal, Wake};
use futures::FutureExt;

use super::*;
use dlock_contract::{ErrorKind, Key, Mode, OncePer};

const SECOND: Duration = Duration::from_secs(1);

fn claim(key: &'static str) -> Arc<Claim> {
    let key = LockKey::new("test", Key::text(key)).unwrap();
    Arc::new(Claim::new(key, Duration::from_secs(1), "test").unwrap())
}

fn ask(store: &Memory, claim: &Arc<Claim>, queue: Queue) -> Attempt {
    store.attempt(claim, queue).unwrap()
}

fn until(clock: &Clock) -> Queue {
    Queue::until(clock.now().after(Duration::from_secs(60)))
}

fn take(store: &Memory, claim: &Arc<Claim>) -> Hold {
    match ask(store, claim, Queue::Leave) {
        Attempt::Acquired(hold) => hold,
        other => panic!("free, but {other:?}"),
    }
}

fn stand(store: &Memory, claim: &Arc<Claim>) -> Wake {
    match ask(store, claim, until(&store.clock)) {
        Attempt::Contended(wake) => wake,
        other => panic!("taken, but {other:?}"),
    }
}

fn is_refused(store: &Memory, claim: &Arc<Claim>) -> bool {
    matches!(ask(store, claim, Queue::Leave), Attempt::Contended(_))
}

fn granted(wake: &mut Wake) -> Option<Hold> {
    match wake.signal.as_mut().unwrap().now_or_never()?.unwrap() {
        Signal::Granted(hold) => Some(hold),
        Signal::Ask => None,
    }
}

fn end(store: &Memory, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Released {
    store.free(&hold.claim, keep, run)
}

fn release(store: &Memory, hold: &Hold) {
    assert_eq!(end(store, hold, None, None), Released::Released);
}

#[test]
fn the_queue_is_served_in_order_and_then_forgotten() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let claims: Vec<_> = (0..3).map(|_| claim("k")).collect();
    let Attempt::Acquired(mut held) = ask(&store, &claims[0], Queue::Leave) else { panic!("free") };
    let mut wakes: Vec<_> = claims[1..]
        .iter()
        .map(|claim| match ask(&store, claim, until(&clock)) {
            Attempt::Contended(wake) => wake,
            other => panic!("taken, but {other:?}"),
        })
        .collect();
    for (next, wake) in claims[1..].iter().zip(&mut wakes) {
        let token = held.token;
        assert_eq!(futures::executor::block_on(store.release(&held)).unwrap(), Released::Released);
        let signal = futures::executor::block_on(wake.signal.take().unwrap()).unwrap();
        let Signal::Granted(granted) = signal else { panic!("handed over") };
        assert_eq!(granted.claim.owner, next.owner);
        assert!(granted.token > token);
        held = granted;
    }
    futures::executor::block_on(store.release(&held)).unwrap();
    assert!(store.is_empty());
}

#[test]
fn an_expired_lock_goes_to_the_first_waiter_and_not_to_the_caller_that_asks() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let (first, second, third) = (claim("k"), claim("k"), claim("k"));
    ask(&store, &first, Queue::Leave);
    let Attempt::Contended(wake) = ask(&store, &second, until(&clock)) else { panic!("taken") };
    clock.advance(Duration::from_secs(2));
    assert!(matches!(ask(&store, &third, Queue::Leave), Attempt::Contended(_)));
    let signal = futures::executor::block_on(wake.signal.unwrap()).unwrap();
    assert!(matches!(signal, Signal::Granted(hold) if hold.claim.owner == second.owner));
}

#[test]
fn a_waiter_that_is_gone_is_skipped() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let (first, gone) = (claim("k"), claim("k"));
    let Attempt::Acquired(held) = ask(&store, &first, Queue::Leave) else { panic!("free") };
    drop(ask(&store, &gone, until(&clock)));
    futures::executor::block_on(store.release(&held)).unwrap();
    assert!(store.is_empty());
}

#[test]
fn a_memory_url_with_an_account_or_a_host_is_refused() {
    let error = dlock_store::Address::parse("memory://user:secret@host", &FORM).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
}

/// A waker may ask for a lock of the same store, so it must not run under the mutex of the table.
#[test]
fn a_waker_may_use_the_store() {
    struct Asks(Memory);
    impl std::task::Wake for Asks {
        fn wake(self: Arc<Self>) {
            take(&self.0, &claim("other"));
        }
    }
    let store = Memory::with_clock(&Clock::manual());
    let poll = |wake: &mut Wake| {
        let waker = Arc::new(Asks(store.clone())).into();
        let signal = wake.signal.as_mut().unwrap().as_mut();
        assert!(signal.poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    };
    let asked = || {
        let asked = !is_refused(&store, &claim("other"));
        store.forget(&claim("other").key);
        !asked
    };
    let hold = take(&store, &claim("k"));
    let [one, other] = [(); 2].map(|()| claim("k"));
    let mut wakes = [&one, &other].map(|claim| stand(&store, claim));
    wakes.iter_mut().for_each(poll);
    release(&store, &hold);
    assert!(asked(), "told of a grant");
    store.free(&other, None, None);
    assert!(asked(), "told that it has left");
    let third = claim("k");
    let mut wake = stand(&store, &third);
    poll(&mut wake);
    let _again = stand(&store, &third);
    assert!(asked(), "told that it has asked again");
    drop(wake);
    let mut wake = stand(&store, &claim("k"));
    poll(&mut wake);
    store.forget(&third.key);
    assert!(asked(), "told that the lock is gone");
}
