//! Holds in a row of one process while another one waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, wait};
use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy, wait_until};

use crate::server::{LONG, Raw, SECOND, fresh, name, open, process};

const ROUNDS: u32 = 4;

/// Its requests are always later than those of the process beside it, so by chance it would hardly ever have the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_far_away_has_its_turn() {
    let near = Arc::new(process("lock_delay=0s").await);
    let (proxy, url) = Proxy::in_front_of(&shared().consul().unwrap()).unwrap();
    let far = open(&format!("{url}?lock_delay=0s")).await.unwrap();
    let late = Duration::from_millis(20);
    proxy.set(Mode::Delay { to_server: late, to_client: late });
    let key = dlock::LockKey::new("shop", dlock::Key::new().value(&fresh("far"))).unwrap();
    let claim = || claim_on(&key, LONG, |_| ());
    let is_over = Arc::new(AtomicBool::new(false));
    let holds = Arc::new(AtomicU32::new(0));
    let busy = tokio::spawn({
        let (near, is_over, key, holds) = (near.clone(), is_over.clone(), key.clone(), holds.clone());
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let hold = wait(&*near, &claim_on(&key, LONG, |_| ()), LONG).await;
                holds.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(60)).await;
                assert_eq!(near.release(&hold).await.unwrap(), Released::Released);
            }
        }
    });
    let mut passed = 0;
    for _ in 0..ROUNDS {
        let claim = claim();
        let before = holds.load(Ordering::Relaxed);
        let waits = wait(&far, &claim, LONG);
        let hold = tokio::time::timeout(SECOND * 30, waits).await.expect("it was passed over again and again");
        passed += holds.load(Ordering::Relaxed) - before;
        assert_eq!(far.release(&hold).await.unwrap(), Released::Released);
    }
    // Eight in a row, and those before the mark was there.
    assert!(
        passed <= ROUNDS * 20,
        "{passed} holds in front of {ROUNDS}: if the machine was late all the time, nothing is proven"
    );
    is_over.store(true, Ordering::Relaxed);
    busy.await.unwrap();
    let mark = format!("dl1:!wanted:{}", name(&claim()));
    wait_until("no mark is left", async || Raw::shared().entry(&mark).is_null()).await.unwrap();
}
