//! The store by itself, on a clock by hand.

use std::num::NonZeroU32;

use futures::FutureExt;

use super::*;
use crate::backend::{RunEnd, Signal, Wake};
use crate::{ErrorKind, Key, Kind, OncePer};

fn claim(key: &'static str) -> Arc<Claim> {
    let key = LockKey::new("test", Key::text(key)).unwrap();
    Arc::new(Claim::new(key, Duration::from_secs(1), "test").unwrap())
}

fn ask(store: &Memory, claim: &Arc<Claim>, stand: Stand) -> Attempt {
    store.attempt(claim, stand).unwrap()
}

fn until(clock: &Clock) -> Stand {
    Stand::Until(clock.now().after(Duration::from_secs(60)))
}

#[test]
fn the_line_is_served_in_order_and_forgotten() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let claims: Vec<_> = (0..3).map(|_| claim("k")).collect();
    let Attempt::Acquired(mut held) = ask(&store, &claims[0], Stand::No) else { panic!("free") };
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
fn an_expired_hold_goes_to_the_line_not_to_the_asker() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let (first, second, third) = (claim("k"), claim("k"), claim("k"));
    ask(&store, &first, Stand::No);
    let Attempt::Contended(wake) = ask(&store, &second, until(&clock)) else { panic!("taken") };
    clock.advance(Duration::from_secs(2));
    assert!(matches!(ask(&store, &third, Stand::No), Attempt::Contended(_)));
    let signal = futures::executor::block_on(wake.signal.unwrap()).unwrap();
    assert!(matches!(signal, Signal::Granted(hold) if hold.claim.owner == second.owner));
}

#[test]
fn a_waiter_that_is_gone_is_passed_over() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let (first, gone) = (claim("k"), claim("k"));
    let Attempt::Acquired(held) = ask(&store, &first, Stand::No) else { panic!("free") };
    drop(ask(&store, &gone, until(&clock)));
    futures::executor::block_on(store.release(&held)).unwrap();
    assert!(store.is_empty());
}

#[test]
fn the_url_takes_nothing() {
    let error = open("memory://user:secret@host", &Clock::system()).err().unwrap();
    assert!(!format!("{error} {error:?}").contains("secret"));
}

const SECOND: Duration = Duration::from_secs(1);

fn of_kind(kind: Kind) -> Arc<Claim> {
    Arc::new(Claim { kind, ..Claim::clone(&claim("k")) })
}

fn permit(most: u32) -> Arc<Claim> {
    of_kind(Kind::Permits(NonZeroU32::new(most).unwrap()))
}

fn once(period: Duration, rerun: bool) -> Arc<Claim> {
    once_from(Duration::ZERO, period, rerun)
}

fn once_from(offset: Duration, period: Duration, rerun: bool) -> Arc<Claim> {
    Arc::new(Claim { once_per: Some(Box::new(OncePer { period, offset, rerun })), ..Claim::clone(&claim("k")) })
}

fn take(store: &Memory, claim: &Arc<Claim>) -> Hold {
    match ask(store, claim, Stand::No) {
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
    matches!(ask(store, claim, Stand::No), Attempt::Contended(_))
}

fn is_over(store: &Memory, claim: &Arc<Claim>) -> bool {
    matches!(ask(store, claim, Stand::No), Attempt::AlreadyRun)
}

fn granted(wake: &mut Wake) -> Option<Hold> {
    match wake.signal.as_mut().unwrap().now_or_never()?.unwrap() {
        Signal::Granted(hold) => Some(hold),
        Signal::Ask => None,
    }
}

fn end(store: &Memory, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Released {
    store.free(&hold.claim, Ending { keep, run })
}

fn release(store: &Memory, hold: &Hold) {
    assert_eq!(end(store, hold, None, None), Released::Released);
}

#[test]
fn readers_share_and_a_writer_is_not_starved() {
    let store = Memory::with_clock(&Clock::manual());
    let [one, two] = [(); 2].map(|()| take(&store, &of_kind(Kind::Read)));
    assert!(two.token > one.token);
    let mut writer = stand(&store, &of_kind(Kind::Write));
    let mut late = stand(&store, &of_kind(Kind::Read));
    assert!(is_refused(&store, &of_kind(Kind::Read)), "a reader overtook a writer that waits");
    release(&store, &one);
    assert!(granted(&mut writer).is_none(), "beside a reader");
    release(&store, &two);
    let alone = granted(&mut writer).unwrap();
    assert!(granted(&mut late).is_none(), "beside a writer");
    release(&store, &alone);
    release(&store, &granted(&mut late).unwrap());
    assert!(store.is_empty());
}

#[test]
fn a_dead_reader_ends_alone() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    take(&store, &of_kind(Kind::Read));
    clock.advance(SECOND / 2);
    let alive = take(&store, &of_kind(Kind::Read));
    let mut writer = stand(&store, &of_kind(Kind::Write));
    clock.advance(SECOND / 2);
    assert!(granted(&mut writer).is_none());
    release(&store, &alive);
    assert!(granted(&mut writer).is_some());
}

#[test]
fn permits_have_the_lowest_free_slot() {
    let store = Memory::with_clock(&Clock::manual());
    let holds = [(); 3].map(|()| take(&store, &permit(3)));
    assert_eq!(holds.each_ref().map(|hold| hold.slot), [Some(0), Some(1), Some(2)]);
    let mut next = stand(&store, &permit(3));
    release(&store, &holds[1]);
    assert_eq!(granted(&mut next).unwrap().slot, Some(1));
    release(&store, &holds[0]);
    let again = take(&store, &permit(3));
    assert_eq!(again.slot, Some(0));
    let repeated = take(&store, &again.claim);
    assert_eq!((repeated.slot, repeated.token), (again.slot, again.token));
}

#[test]
fn families_do_not_mix_and_a_refusal_leaves_nothing() {
    let store = Memory::with_clock(&Clock::manual());
    let kinds = || [of_kind(Kind::Exclusive), of_kind(Kind::Read), permit(2), permit(3)];
    for (first, holder) in kinds().iter().enumerate() {
        let hold = take(&store, holder);
        for (other, claim) in kinds().iter().enumerate().filter(|(other, _)| *other != first) {
            let error = store.attempt(claim, until(&store.clock)).unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (&ErrorKind::KeyConflict, false), "{first} {other}");
        }
        release(&store, &hold);
        assert!(store.is_empty());
    }
}

#[test]
fn a_place_that_nobody_listens_at_keeps_no_family_away() {
    let store = Memory::with_clock(&Clock::manual());
    let reader = take(&store, &of_kind(Kind::Read));
    drop(stand(&store, &of_kind(Kind::Write)));
    assert!(!is_refused(&store, &of_kind(Kind::Read)));
    store.forget(&reader.claim.key);
    take(&store, &permit(1));
}

#[test]
fn a_kept_key_is_nobodys_until_its_time() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let hold = take(&store, &claim("k"));
    assert_eq!(end(&store, &hold, Some(5 * SECOND), None), Released::Released);
    assert_eq!(end(&store, &hold, None, None), Released::NotOwner);
    let renewed = futures::executor::block_on(store.renew(&[&hold])).pop().unwrap().unwrap();
    assert_eq!(renewed, Standing::Lost);
    assert!(futures::executor::block_on(store.holder(&hold.claim.key)).unwrap().is_some());
    let mut next = stand(&store, &claim("k"));
    assert!(is_refused(&store, &hold.claim), "the former owner is one of the others");
    clock.advance(5 * SECOND - Duration::from_millis(1));
    assert!(is_refused(&store, &claim("k")));
    assert!(granted(&mut next).is_none());
    clock.advance(Duration::from_millis(1));
    assert!(is_refused(&store, &claim("k")), "it is the waiter's");
    assert!(granted(&mut next).is_some());
}

#[test]
fn a_kept_permit_keeps_its_share_only() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let kept = take(&store, &permit(2));
    end(&store, &kept, Some(SECOND / 2), None);
    assert_eq!(take(&store, &permit(2)).slot, Some(1));
    assert!(is_refused(&store, &permit(2)));
    clock.advance(SECOND / 2);
    assert_eq!(take(&store, &permit(2)).slot, Some(0));
}

/// To a boundary between two periods of a minute: half past.
fn to_boundary(clock: &Clock) {
    let into = (clock.wall_ms() + 30_000) % 60_000;
    clock.advance(Duration::from_millis(60_000 - into));
}

#[test]
fn a_period_has_one_start_around_its_boundary() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    to_boundary(&clock);
    let minute = || once(60 * SECOND, true);
    let hold = take(&store, &minute());
    assert!(is_over(&store, &once(60 * SECOND, false)), "the winner still holds");
    assert!(is_refused(&store, &minute()), "it may have to be run again");
    end(&store, &hold, None, Some(RunEnd::Failed));
    clock.advance(60 * SECOND - Duration::from_millis(1));
    assert!(is_over(&store, &minute()), "the same period: nearest boundary");
    clock.advance(Duration::from_millis(1));
    take(&store, &minute());
    assert!(is_over(&store, &once(60 * SECOND, false)));
}

#[test]
fn a_run_of_an_earlier_period_contends() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    to_boundary(&clock);
    clock.advance(60 * SECOND - SECOND / 2);
    let hold = take(&store, &once(60 * SECOND, false));
    clock.advance(SECOND / 2);
    let [mut one, mut other] = [(); 2].map(|()| stand(&store, &once(60 * SECOND, false)));
    release(&store, &hold);
    assert!(granted(&mut one).is_some());
    let told = other.signal.as_mut().unwrap().now_or_never();
    assert!(matches!(told, Some(Ok(Signal::Ask))), "it hears at once that the run was started");
    assert!(is_over(&store, &once(60 * SECOND, false)));
}

#[test]
fn a_crashed_run_is_repeated_only_if_asked_for_and_when_its_lease_is_over() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    to_boundary(&clock);
    let crashed = take(&store, &once(60 * SECOND, false));
    assert!(is_refused(&store, &once(60 * SECOND, true)), "its lease runs");
    clock.advance(SECOND);
    assert!(is_over(&store, &once(60 * SECOND, false)));
    let again = take(&store, &once(60 * SECOND, true));
    assert!(again.token > crashed.token);
    end(&store, &again, None, Some(RunEnd::Succeeded { took: SECOND }));
    assert!(is_over(&store, &once(60 * SECOND, true)));
}

#[test]
fn who_would_rerun_takes_over_or_hears_of_the_end() {
    let clock = Clock::manual();
    let store = &Memory::with_clock(&clock);
    for (keep, run) in [(None, Some(RunEnd::Failed)), (Some(SECOND), Some(RunEnd::Failed)), (None, None)] {
        to_boundary(&clock);
        let winner = take(store, &once(60 * SECOND, true));
        let plain = stand(store, &claim("k"));
        let mut wakes = [(); 2].map(|()| stand(store, &once(60 * SECOND, true)));
        drop(plain);
        end(store, &winner, keep, run);
        let mut told = wakes.each_mut().map(|wake| wake.signal.as_mut().unwrap().now_or_never());
        if run.is_some() {
            assert!(told.iter().all(|told| matches!(told, Some(Ok(Signal::Ask)))), "{told:?}");
            assert!(is_over(store, &once(60 * SECOND, true)));
        } else {
            let Some(Ok(Signal::Granted(again))) = told[0].take() else { panic!("{told:?}") };
            assert!(told[1].is_none(), "the other goes on waiting");
            end(store, &again, None, Some(RunEnd::Failed));
            assert!(granted(&mut wakes[1]).is_none(), "it was run");
        }
        clock.advance(60 * SECOND);
    }
}

#[test]
fn the_last_success_stays_and_starts_do_not() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let key = claim("k").key.clone();
    let last = || futures::executor::block_on(store.last_success(&key)).unwrap();
    assert_eq!(last(), None);
    let began = clock.wall_ms();
    let hold = take(&store, &once(60 * SECOND, false));
    clock.advance(SECOND / 2);
    end(&store, &hold, Some(SECOND), Some(RunEnd::Succeeded { took: SECOND / 2 }));
    let told = last().unwrap();
    assert_eq!(told.started.duration_since(std::time::UNIX_EPOCH).unwrap(), Duration::from_millis(began));
    assert_eq!((told.took, &told.note), (SECOND / 2, &hold.claim.note));
    clock.advance(60 * SECOND);
    let hold = take(&store, &once(60 * SECOND, false));
    end(&store, &hold, None, Some(RunEnd::Failed));
    assert_eq!(last(), Some(told));
    assert!(store.is_empty());
}

#[test]
fn boundaries_begin_at_the_offset() {
    const DAY: Duration = Duration::from_secs(86_400);
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let daily = || once_from(DAY / 2, DAY, false);
    let into = Duration::from_millis(clock.wall_ms() % 86_400_000);
    // Two seconds before noon.
    clock.advance(DAY * 3 / 2 - into - 2 * SECOND);
    let hold = take(&store, &daily());
    end(&store, &hold, None, Some(RunEnd::Failed));
    clock.advance(4 * SECOND);
    assert!(is_over(&store, &daily()), "on both sides of noon it is one run");
    clock.advance(DAY / 2 - 3 * SECOND);
    assert!(is_over(&store, &daily()));
    clock.advance(SECOND);
    take(&store, &daily());
}

#[test]
fn a_period_of_another_length_is_compared_by_its_time() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let into = Duration::from_millis(clock.wall_ms() % 3_600_000);
    clock.advance(3600 * SECOND - into);
    for period in [60 * SECOND, 3600 * SECOND, 60 * SECOND] {
        let hold = take(&store, &once(period, false));
        end(&store, &hold, None, Some(RunEnd::Failed));
        // The hour's boundary is this minute's too.
        assert!(is_over(&store, &once(60 * SECOND, false)));
        assert!(is_over(&store, &once(3600 * SECOND, false)));
        clock.advance(3600 * SECOND);
    }
}

/// A waker may ask for a lock of the same store: it must not meet the table's own mutex.
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
    store.free(&other, SIMPLY);
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
