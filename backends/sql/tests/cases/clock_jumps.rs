//! A server whose wall clock is set forward and back. Lease rows count by it. Locks of a session
//! do not, unless the server counts the silence of a session by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock::{Key, LockKey};
use dlock_contract::{Attempt, Backend, Hold, Keeps, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, key, take, token};
use dlock_testkit::servers::WallClock;
use futures::FutureExt;

use super::kit::{Database, JUMPS_END_SESSIONS, LOCAL_NOW, NOW, SUMMER_TIME, TTL};
use super::support::is_refused;
use crate::{named_kit, row_kit};

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
    one.close().await;
    other.close().await;
    // On the same server, since each start costs more than this.
    summer_time_moves_no_lease(&clock, &database).await;
}

/// The end of summer time in 2026 and its begin in 2027, where the server lives: the local clock jumps by an hour.
const CHANGES: [i64; 2] = [1_792_890_000, 1_806_195_600];

async fn summer_time_moves_no_lease(clock: &WallClock, database: &Database) {
    database.change(&SUMMER_TIME.replace("{database}", &database.name)).await;
    let local_time = async || database.number(LOCAL_NOW).await;
    for change in CHANGES {
        let go_to = |seconds: i64| {
            let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            clock.set_ahead(change - machine.cast_signed() + seconds).unwrap();
        };
        go_to(-12);
        let (one, other) = (database.store().await, database.store().await);
        let hold = take(&one, &database.claim("b", TTL)).await;
        let before = local_time().await;
        go_to(8);
        let moved = local_time().await - before;
        assert!(!(-1800..1800).contains(&moved), "the local clock has moved by {moved} s, so nothing is proven");
        let Attempt::Contended(wake) = other.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap() else {
            panic!("two holders")
        };
        assert!(wake.lease_left.unwrap() <= TTL - Duration::from_secs(8), "{:?}", wake.lease_left);
        assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
        go_to(8 + TTL.as_secs().cast_signed() + 60);
        assert!(token(&take(&other, &database.claim("b", TTL)).await) > token(&hold), "a lease has an hour more");
        // In spring the universal time is half past two, which no local clock shows.
        go_to(HOUR + HOUR / 2);
        let shed = database.store_with("layout=shedlock&shedlock_create=yes").await;
        let job = take(&shed, &claim_on(&key("job"), TTL, |_| ())).await;
        assert!(matches!(confirm(&shed, &job).await, Standing::Renewed(_)));
        assert_eq!(shed.release(&job).await.unwrap(), Released::Released);
        shed.close().await;
        one.close().await;
        other.close().await;
    }
}

async fn a_jump_of_the_clock_takes_no_lock_of_a_session_in_silence_and_tokens_rise(
    clock: WallClock,
    database: Database,
) {
    let names = (named_kit::open(&database).await, named_kit::open(&database).await);
    let url = database.url();
    let rows = (row_kit::open(&url).await.unwrap(), row_kit::open(&url).await.unwrap());
    // A namespace is locked in one way.
    let claim = |way: &str| claim_on(&LockKey::new(way, Key::text("a")).unwrap(), TTL, |_| ());
    let mut last = (0, 0);
    for ahead in [HOUR, -HOUR, 2 * HOUR, 0] {
        let name = take(&names.0, &claim("named")).await;
        let row = take(&rows.0, &claim("row")).await;
        for (hold, last) in [(&name, last.0), (&row, last.1)] {
            assert!(token(hold) > last, "{} after {last}, with the clock at {ahead}", token(hold));
        }
        clock.set_ahead(ahead).unwrap();
        // Longer than the monitors need.
        tokio::time::sleep(Duration::from_millis(600)).await;
        last = (goes_on_or_is_told(&names, &name, ahead).await, goes_on_or_is_told(&rows, &row, ahead).await);
    }
}

/// Ends the hold, and the one of another session that came in. The highest token so far.
async fn goes_on_or_is_told<S: Backend>((one, other): &(S, S), hold: &Hold, ahead: i64) -> u64 {
    match other.try_acquire(&claim_on(&hold.claim.key, TTL, |_| ()), Queue::Leave).await.unwrap() {
        Attempt::Contended(_) => {
            assert!(matches!(confirm(one, hold).await, Standing::Renewed(_)), "a jump to {ahead} lost the lock");
            assert_eq!(one.release(hold).await.unwrap(), Released::Released);
            token(hold)
        }
        Attempt::Acquired(next) if JUMPS_END_SESSIONS => {
            let ended = hold.session.as_ref().unwrap().ended().unwrap();
            assert!(ended.now_or_never().is_some(), "two holders, and the first one was not told");
            assert_eq!(confirm(one, hold).await, Standing::Lost);
            assert_eq!(other.release(&next).await.unwrap(), Released::Released);
            token(&next)
        }
        answer => panic!("a jump to {ahead} ended the lock: {answer:?}"),
    }
}
