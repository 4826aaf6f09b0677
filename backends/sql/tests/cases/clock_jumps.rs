//! A server whose wall clock is set forward and back. Lease rows count by it. Locks of a session
//! do not, unless the server counts the silence of a session by it.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Keeps, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::servers::WallClock;
use futures::FutureExt;

use super::kit::{Database, JUMPS_END_SESSIONS, NOW, TTL, key};
use super::support::is_refused;
use crate::named_kit;

cases_with_clock! {
    a_clock_that_is_set_forward_ends_leases_and_one_that_is_set_back_keeps_them_and_tokens_rise
    a_jump_of_the_clock_takes_no_lock_of_a_session_in_silence_and_tokens_rise
}

const HOUR: i64 = 3600;

async fn a_clock_that_is_set_forward_ends_leases_and_one_that_is_set_back_keeps_them_and_tokens_rise(
    clock: WallClock,
    database: Database,
) {
    let (one, other) = (database.store().await, database.store().await);
    let first = take(&one, &database.claim("a", TTL)).await;
    let kept = take(&one, &database.claim("kept", TTL)).await;
    assert_eq!(one.keep(&kept, TTL, None).await.unwrap(), Released::Released);
    let now = async || database.number(&format!("SELECT {NOW}")).await;
    let before = now().await;
    clock.set_ahead(HOUR).unwrap();
    assert!(now().await - before > 3_500_000_000, "the server does not follow the clock, so nothing is proven");
    // As documented: the lease is over. The former holder hears of it, and a resource that compares tokens refuses it.
    let second = take(&other, &database.claim("a", TTL)).await;
    assert!(token(&second) > token(&first));
    assert_eq!(confirm(&one, &first).await, Standing::Lost);
    assert_eq!(one.release(&first).await.unwrap(), Released::NotOwner);
    take(&one, &database.claim("kept", TTL)).await;
    clock.set_ahead(-HOUR).unwrap();
    // Two hours longer than it was asked for, and nobody comes in.
    is_refused(&one, &database.claim("a", TTL)).await;
    let Attempt::Contended(wake) = one.try_acquire(&database.claim("a", TTL), Queue::Leave).await.unwrap() else {
        panic!("two holders")
    };
    assert!(wake.lease_left.unwrap() > Duration::from_secs(3600), "{:?}", wake.lease_left);
    let Standing::Renewed(validity) = confirm(&other, &second).await else {
        panic!("a clock that was set back lost it")
    };
    assert_eq!(validity.granted, TTL);
    is_refused(&one, &database.claim("a", TTL)).await;
    assert_eq!(other.release(&second).await.unwrap(), Released::Released);
    let third = take(&one, &database.claim("a", TTL)).await;
    assert!(token(&third) > token(&second), "{} after {}", token(&third), token(&second));
    assert_eq!(one.release(&third).await.unwrap(), Released::Released);
}

async fn a_jump_of_the_clock_takes_no_lock_of_a_session_in_silence_and_tokens_rise(
    clock: WallClock,
    database: Database,
) {
    let (one, other) = (named_kit::open(&database).await, named_kit::open(&database).await);
    let claim = || claim_on(&key(&database, "a"), TTL, |_| ());
    let mut last = 0;
    for ahead in [HOUR, -HOUR, 2 * HOUR, 0] {
        let hold = take(&one, &claim()).await;
        assert!(token(&hold) > last, "{} after {last}, with the clock at {ahead}", token(&hold));
        last = token(&hold);
        clock.set_ahead(ahead).unwrap();
        // Longer than the monitor needs.
        tokio::time::sleep(Duration::from_millis(600)).await;
        match other.try_acquire(&claim(), Queue::Leave).await.unwrap() {
            Attempt::Contended(_) => {
                assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a jump to {ahead} lost the lock");
                assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
            }
            Attempt::Acquired(next) if JUMPS_END_SESSIONS => {
                let ended = hold.session.as_ref().unwrap().ended().unwrap();
                assert!(ended.now_or_never().is_some(), "two holders, and the first one was not told");
                assert_eq!(confirm(&one, &hold).await, Standing::Lost);
                last = token(&next);
                assert_eq!(other.release(&next).await.unwrap(), Released::Released);
            }
            answer => panic!("a jump to {ahead} ended the lock: {answer:?}"),
        }
    }
}
