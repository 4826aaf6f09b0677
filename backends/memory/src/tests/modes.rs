//! Readers, writers and permits; keys that are kept.

use std::num::NonZeroU32;

use super::*;

fn of_mode(mode: Mode) -> Arc<Claim> {
    Arc::new(Claim::clone(&claim("k")).with(|claim| claim.mode = mode))
}

fn permit(most: u32) -> Arc<Claim> {
    of_mode(Mode::Permits(NonZeroU32::new(most).unwrap()))
}

#[test]
fn readers_share_and_a_writer_is_not_starved() {
    let store = Memory::with_clock(&Clock::manual());
    let [one, two] = [(); 2].map(|()| take(&store, &of_mode(Mode::Read)));
    assert!(two.token > one.token);
    let mut writer = stand(&store, &of_mode(Mode::Write));
    let mut late = stand(&store, &of_mode(Mode::Read));
    assert!(is_refused(&store, &of_mode(Mode::Read)), "a reader overtook a writer that waits");
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
    take(&store, &of_mode(Mode::Read));
    clock.advance(SECOND / 2);
    let alive = take(&store, &of_mode(Mode::Read));
    let mut writer = stand(&store, &of_mode(Mode::Write));
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
    let modes = || [of_mode(Mode::Exclusive), of_mode(Mode::Read), permit(2), permit(3)];
    for (first, holder) in modes().iter().enumerate() {
        let hold = take(&store, holder);
        for (other, claim) in modes().iter().enumerate().filter(|(other, _)| *other != first) {
            let error = store.attempt(claim, until(&store.clock)).unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (&ErrorKind::KeyConflict, false), "{first} {other}");
        }
        release(&store, &hold);
        assert!(store.is_empty());
    }
}

#[test]
fn the_place_of_a_waiter_that_is_gone_keeps_no_family_away() {
    let store = Memory::with_clock(&Clock::manual());
    let reader = take(&store, &of_mode(Mode::Read));
    drop(stand(&store, &of_mode(Mode::Write)));
    assert!(!is_refused(&store, &of_mode(Mode::Read)));
    store.forget(&reader.claim.key);
    take(&store, &permit(1));
}

#[test]
fn a_kept_key_has_no_holder_until_its_time_is_over() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let hold = take(&store, &claim("k"));
    assert_eq!(end(&store, &hold, Some(5 * SECOND), None), Released::Released);
    assert_eq!(end(&store, &hold, None, None), Released::NotOwner);
    let renewed = futures::executor::block_on(store.renew(&[&hold])).pop().unwrap().unwrap();
    assert_eq!(renewed, Standing::Lost);
    assert!(futures::executor::block_on(store.look(&hold.claim.key)).unwrap().note().is_some());
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

#[test]
fn waiters_hear_that_a_key_is_kept_for_less_than_the_lease_and_keep_their_places() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let hold = take(&store, &claim("k"));
    let claims = [(); 2].map(|()| claim("k"));
    let asks_again = |mut wake: Wake| matches!(wake.signal.as_mut().unwrap().now_or_never(), Some(Ok(Signal::Ask)));
    let wakes = claims.each_ref().map(|claim| stand(&store, claim));
    end(&store, &hold, Some(SECOND / 2), None);
    // Another caller comes before they ask.
    let mut third = stand(&store, &claim("k"));
    assert!(wakes.into_iter().all(asks_again), "it sleeps until the former end of the lease");
    let [second, first] = [1, 0].map(|place: usize| stand(&store, &claims[place]));
    assert_eq!(first.ask_by, Some(clock.now().after(SECOND / 2)));
    clock.advance(SECOND / 2);
    for mut wake in [first, second] {
        is_refused(&store, &claim("k"));
        release(&store, &granted(&mut wake).expect("its place was lost"));
    }
    assert!(granted(&mut third).is_some());
}

#[test]
fn a_waiter_that_never_asks_again_after_a_kept_key_keeps_nobody_out() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let hold = take(&store, &claim("k"));
    let gone = stand(&store, &claim("k"));
    end(&store, &hold, Some(SECOND / 2), None);
    drop(gone);
    clock.advance(SECOND / 2);
    take(&store, &claim("k"));
}

#[test]
fn a_writer_that_gives_up_lets_in_the_readers_behind_it() {
    let store = Memory::with_clock(&Clock::manual());
    take(&store, &of_mode(Mode::Read));
    let writer = of_mode(Mode::Write);
    let _wake = stand(&store, &writer);
    let mut reader = stand(&store, &of_mode(Mode::Read));
    futures::executor::block_on(store.abandon(&writer)).unwrap();
    assert!(granted(&mut reader).is_some());
}
