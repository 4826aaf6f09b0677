//! Dropped requests: nobody waits for their answers.

use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::drop_after;
use dlock_testkit::holds::{confirm, take};

use super::support::{take_soon, until};
use crate::named_kit::{Database, TTL, open, session_of};

named_cases! {
    a_dropped_attempt_holds_nothing
    a_dropped_renewal_does_not_lose_the_lock
}

async fn a_dropped_attempt_holds_nothing(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let (mut dropped, mut granted, mut slowest) = (0, 0, Duration::ZERO);
    // On a fast machine few attempts are dropped, and on a slow one few end.
    for round in 0.. {
        if round >= 200 && dropped > 10 && granted > 10 {
            break;
        }
        assert!(round < 5000, "{dropped} dropped, {granted} granted: nothing is proven");
        let claim = database.claim("a", TTL);
        // Slow and busy machines differ by much: half of the attempts get time to end.
        let pause = Duration::from_micros(fastrand::u64(0..2000)) * (1 + round % 4);
        let queue = if round % 2 == 0 { Queue::Leave } else { until(TTL) };
        match drop_after(fastrand::usize(0..20), pause, one.try_acquire(&claim, queue)).await {
            Some(_) => granted += 1,
            None => dropped += 1,
        }
        one.abandon(&claim).await.unwrap();
        let (hold, after) = take_soon(&other, &database.claim("a", TTL)).await;
        slowest = slowest.max(after);
        other.release(&hold).await.unwrap();
    }
    assert_eq!(session_of(&database, "a").await, None);
    eprintln!("{dropped} dropped, {granted} done; the next one had the lock after {slowest:?} at the latest");
}

async fn a_dropped_renewal_does_not_lose_the_lock(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &database.claim("a", TTL)).await;
    let (mut dropped, mut rounds) = (0, 0);
    // On a busy machine the server often answers within the first poll.
    while dropped < 20 {
        rounds += 1;
        assert!(rounds < 5000, "nothing is proven");
        let pause = Duration::from_micros(fastrand::u64(0..200));
        dropped += u32::from(drop_after(1, pause, one.renew(&[&hold])).await.is_none());
        let before = Clock::system().now();
        let Standing::Renewed(first) = confirm(&one, &hold).await else { panic!("lost") };
        let Standing::Renewed(second) = confirm(&one, &hold).await else { panic!("lost") };
        assert!(second.from >= before && first.from < second.from, "an old answer must keep its old instant");
    }
    drop_after(1, Duration::ZERO, one.renew(&[&hold])).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}
