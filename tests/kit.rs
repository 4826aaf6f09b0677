//! The test kit hangs nobody's test: its clock follows tokio's paused one, and else a wait that only `advance` can end
//! says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::time::{Duration, Instant};

use dlock::testing::TestKit;
use dlock::{Error, ErrorKind, Key, current, distributed_lock};

const SECOND: Duration = Duration::from_secs(1);

/// In real time. Only a test that hangs comes near it.
const HANG: Duration = Duration::from_secs(60);

#[distributed_lock(key = "stock:<id>", wait = "20s")]
async fn deduct(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "stock:<id>", wait = "none")]
async fn deduct_now(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "import", ttl = "30s")]
async fn import(time: Duration) -> Result<Duration, Error> {
    tokio::time::sleep(time).await;
    Ok(current().expect("a body has its lock").remaining())
}

/// In real time, also if tokio's clock stands still.
fn bounded(test: impl AsyncFnOnce() + Send + 'static) {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(test());
        let _ = done.send(());
    });
    result.recv_timeout(HANG).expect("an end, and no panic")
}

/// A test's kits often end with its block, in the order of the names or of a struct's fields.
#[tokio::test]
async fn kits_are_left_in_any_order() {
    let (first, second) = (TestKit::new(), TestKit::new());
    let held = async |kit: &TestKit| {
        let guard = kit.lock(Key::text("stock:").value(&7_u64)).acquire().await.unwrap();
        let refused = deduct_now(7).await.map_err(|error| error.kind().clone());
        guard.release().await.unwrap();
        refused == Err(ErrorKind::Busy)
    };
    let in_first = first.enter();
    let in_second = second.enter();
    assert!(held(&second).await && !held(&first).await);
    drop(in_first);
    assert!(held(&second).await && !held(&first).await, "the second is still entered");
    let again = first.enter();
    drop(in_second);
    assert!(held(&first).await && !held(&second).await, "the first is entered again");
    drop(again);
    assert!(matches!(deduct_now(7).await.unwrap_err().kind(), ErrorKind::BackendNotRegistered { .. }));
}

#[test]
fn in_a_paused_test_a_busy_key_is_waited_for_in_tokios_time() {
    bounded(async || {
        let kit = TestKit::new();
        let _in = kit.enter();
        let begin = tokio::time::Instant::now();
        kit.busy_for(5 * SECOND);
        assert_eq!(deduct(1).await.unwrap(), 1);
        let waited = begin.elapsed();
        assert!((5 * SECOND..6 * SECOND).contains(&waited), "{waited:?}");
        kit.busy_for(60 * SECOND);
        assert_eq!(deduct(1).await.unwrap_err().kind(), &ErrorKind::WaitTimeout);
        assert!((20 * SECOND..21 * SECOND).contains(&(begin.elapsed() - waited)), "{:?}", begin.elapsed());
    });
}

#[test]
fn in_a_paused_test_an_outage_is_waited_out() {
    bounded(async || {
        let kit = TestKit::new();
        let _in = kit.enter();
        kit.outage(true);
        assert_eq!(deduct(1).await.unwrap_err().kind(), &ErrorKind::Outage);
        let waiting = tokio::spawn(deduct(2));
        tokio::time::sleep(Duration::from_millis(1)).await;
        kit.outage(false);
        assert_eq!(waiting.await.unwrap().unwrap(), 2);
    });
}

#[test]
fn in_a_paused_test_a_lock_is_renewed_and_lost_in_tokios_time() {
    bounded(async || {
        let kit = TestKit::new();
        let _in = kit.enter();
        for _ in 0..5 {
            let left = import(600 * SECOND).await.unwrap();
            assert!(left > 15 * SECOND, "{left:?}");
        }
        let guard = kit.lock("k").ttl(30 * SECOND).acquire().await.unwrap();
        kit.outage(true);
        let begin = tokio::time::Instant::now();
        assert!(guard.lost().await.is_lost());
        assert!(begin.elapsed() <= 31 * SECOND, "{:?}", begin.elapsed());
        let broken = kit.lock("k").break_hold("0123456789abcdef".parse().unwrap()).await;
        assert_eq!(broken.unwrap_err().kind(), &ErrorKind::Outage);
        kit.outage(false);
        // No renewal came through, so its lease is over in the store too, a little later.
        tokio::time::sleep(3 * SECOND).await;
        kit.lock("k").try_acquire().await.unwrap().release().await.unwrap();
        // Advanced by hand too, beyond tokio's clock.
        let guard = kit.lock("other").ttl(30 * SECOND).renew(dlock::Renew::Off).acquire().await.unwrap();
        kit.clock().advance(31 * SECOND);
        assert!(guard.check().unwrap_err().is_lost());
        let guard = kit.lock("third").ttl(30 * SECOND).renew(dlock::Renew::Off).acquire().await.unwrap();
        tokio::time::advance(31 * SECOND).await;
        assert!(guard.check().unwrap_err().is_lost());
    });
}

#[test]
fn in_a_paused_test_a_leader_is_lost_and_leads_again() {
    bounded(async || {
        let kit = TestKit::new();
        let election = kit.elect("billing").ttl(10 * SECOND);
        let mut seen = election.observe().unwrap();
        assert_eq!(seen.changed().await.unwrap(), None);
        let (terms, mut led) = tokio::sync::mpsc::unbounded_channel();
        let leads = tokio::spawn(election.lead(async move |leader| {
            terms.send(leader.term().get()).unwrap();
            std::future::pending::<()>().await
        }));
        let first = led.recv().await.unwrap();
        assert_eq!(seen.changed().await.unwrap().unwrap().term, Some(first));
        kit.outage(true);
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(seen.changed().await.unwrap_err().kind(), &ErrorKind::Outage);
        kit.outage(false);
        let second = led.recv().await.unwrap();
        assert!(second > first);
        loop {
            // The lock was free for a while.
            match seen.changed().await {
                Ok(Some(leader)) => break assert_eq!(leader.term, Some(second)),
                Ok(None) => {}
                Err(error) => assert_eq!(error.kind(), &ErrorKind::Outage),
            }
        }
        kit.registry().shutdown(SECOND).await;
        assert_eq!(leads.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
    });
}

#[tokio::test]
async fn an_observer_that_only_advancing_the_clock_can_wake_says_so() {
    let kit = TestKit::new();
    let mut seen = kit.elect("billing").observe().unwrap();
    assert_eq!(seen.changed().await.unwrap(), None);
    let error = tokio::time::timeout(HANG, seen.changed()).await.expect("an end").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::WouldDeadlock, "{error}");
}

#[tokio::test]
async fn a_wait_that_only_advancing_the_clock_can_end_fails_and_says_so() {
    let kit = TestKit::new();
    let begin = Instant::now();
    let ends = async {
        kit.outage(true);
        let outage = tokio::spawn(kit.scope(deduct(1)));
        let also_outage = tokio::spawn(kit.scope(deduct(1)));
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        kit.outage(false);
        let held = kit.lock("held").acquire().await.unwrap();
        let behind = tokio::spawn(kit.lock("held").wait(dlock::Wait::UpTo(20 * SECOND)).acquire());
        kit.busy_for(5 * SECOND);
        let busy = kit.scope(deduct(2)).await;
        let ends = [busy, outage.await.unwrap(), also_outage.await.unwrap(), behind.await.unwrap().map(|_| 0)];
        drop(held);
        ends
    };
    for end in tokio::time::timeout(HANG, ends).await.expect("nobody hangs") {
        let error = end.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::WouldDeadlock, "{error}");
        assert!(!error.is_contention() && !error.is_retryable());
        let text = error.to_string();
        assert!(text.contains("advance") && text.contains("in_real_time"), "{text}");
    }
    assert!(begin.elapsed() >= 5 * SECOND);
}

#[tokio::test]
async fn a_wait_goes_on_while_somebody_advances_the_clock() {
    let ends = async || {
        let kit = TestKit::new();
        kit.busy_for(8 * SECOND);
        let waiting = tokio::spawn(kit.scope(deduct(1)));
        for _ in 0..9 {
            tokio::time::sleep(SECOND).await;
            kit.clock().advance(SECOND);
        }
        tokio::time::timeout(HANG, waiting).await.unwrap().unwrap()
    };
    for _ in 0..3 {
        match ends().await {
            // On a busy machine, this test itself may not have moved the clock for five seconds.
            Err(error) if *error.kind() == ErrorKind::WouldDeadlock => {}
            end => return assert_eq!(end.unwrap(), 1),
        }
    }
    panic!("the wait ended each time");
}

#[tokio::test]
async fn a_shutdown_ends_although_nobody_advances_the_clock() {
    let kit = TestKit::new();
    let guard = kit.lock("k").acquire().await.unwrap();
    kit.outage(true);
    drop(guard);
    let report = tokio::time::timeout(HANG, kit.registry().shutdown(SECOND)).await.expect("an end");
    assert_eq!(report.unconfirmed, 1, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_on_a_thread_without_the_test_kit_names_scope() {
    let kit = TestKit::new();
    let _in = kit.enter();
    let error = std::thread::spawn(|| dlock::lock("k").acquire_blocking().unwrap_err()).join().unwrap();
    assert!(matches!(error.kind(), ErrorKind::BackendNotRegistered { .. }), "{error}");
    assert!(error.to_string().contains("scope"), "{error}");
    let scoped = tokio::spawn(kit.scope(deduct(1)));
    assert_eq!(scoped.await.unwrap().unwrap(), 1);
}
