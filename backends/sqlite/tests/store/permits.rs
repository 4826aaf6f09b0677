//! Permits, beyond the suite: their ends on the file's clock, families under one key, and holds over a restart.

use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock::{Clock, Mode};
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim_in, confirm, take, token};

use crate::store::{Store, TTL, conflicts, contended, mode_claim, permits, slot};

#[tokio::test]
async fn a_permit_ends_alone_at_its_own_ttl() {
    let store = Store::new();
    let one = store.open().await;
    let short = take(&one, &claim_in("a", permits(2), Duration::from_secs(10))).await;
    let long = take(&one, &mode_claim(permits(2))).await;
    assert_eq!(contended(&one, &mode_claim(permits(2)), Queue::Leave).await.lease_left, Some(Duration::from_secs(10)));
    store.clock.advance(Duration::from_secs(10));
    assert_eq!(confirm(&one, &short).await, Standing::Lost);
    assert!(matches!(confirm(&one, &long).await, Standing::Renewed(_)));
    assert_eq!(one.look(&long.claim.key).await.unwrap().note().cloned().unwrap(), long.claim.note);
    let next = take(&one, &mode_claim(permits(2))).await;
    assert_eq!(slot(&next), 0);
    assert_eq!(one.release(&short).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(&one, &next).await, Standing::Renewed(_)));
}

#[tokio::test]
async fn an_owner_that_asks_again_keeps_its_permit_with_token_and_slot() {
    let store = Store::new();
    let one = store.open().await;
    take(&one, &mode_claim(permits(2))).await;
    let mine = mode_claim(permits(2));
    let first = take(&one, &mine).await;
    store.clock.advance(TTL / 2);
    let again = take(&one, &mine).await;
    assert_eq!((token(&again), slot(&again)), (token(&first), slot(&first)));
    store.clock.advance(TTL - Duration::from_nanos(1));
    assert!(matches!(confirm(&one, &again).await, Standing::Renewed(_)));
    assert_eq!(store.ask("SELECT count(*) FROM dlock_shares").await, 2);
    assert_eq!(take(&one, &mode_claim(permits(2))).await.slot, Some(0), "the dead one's");
}

#[tokio::test]
async fn families_keep_each_other_out_and_leave_nothing() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let families = [Mode::Exclusive, Mode::Read, Mode::Write, permits(2), permits(3)];
    for held in families {
        let hold = take(&one, &mode_claim(held)).await;
        let rows = store.rows().await;
        for asked in families.into_iter().filter(|asked| !asked.mixes_with(held)) {
            conflicts(&other, &mode_claim(asked), Queue::Leave).await;
            conflicts(&other, &mode_claim(asked), Queue::until(store.clock.now().after(TTL))).await;
            assert_eq!(store.rows().await, rows, "{asked:?} left something beside {held:?}");
        }
        assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
        one.release(&hold).await.unwrap();
        assert_eq!(store.rows().await, 0);
    }
}

#[tokio::test]
async fn a_dead_holders_lock_is_free_for_every_family() {
    let store = Store::new();
    let one = store.open().await;
    let families = [Mode::Exclusive, Mode::Read, Mode::Write, permits(2), permits(3)];
    for dead in families {
        for next in families {
            let holders = if dead.is_shared() { 2 } else { 1 };
            let mut gone = Vec::new();
            for _ in 0..holders {
                gone.push(take(&one, &mode_claim(dead)).await);
            }
            store.clock.advance(TTL);
            let hold = take(&one, &mode_claim(next)).await;
            assert!(gone.iter().all(|gone| token(gone) < token(&hold)));
            for gone in gone {
                assert_eq!(confirm(&one, &gone).await, Standing::Lost);
                one.abandon(&gone.claim).await.unwrap();
            }
            assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "{next:?} after {dead:?}");
            one.release(&hold).await.unwrap();
            assert_eq!(store.rows().await, 0, "{next:?} after {dead:?}");
        }
    }
}

#[tokio::test]
async fn the_key_is_in_use_just_as_long_as_its_longest_holder() {
    let store = Store::new();
    let one = store.open().await;
    let short = take(&one, &claim_in("a", permits(3), Duration::from_secs(5))).await;
    let long = take(&one, &claim_in("a", permits(3), Duration::from_secs(500))).await;
    conflicts(&one, &mode_claim(Mode::Exclusive), Queue::Leave).await;
    store.clock.advance(Duration::from_secs(4));
    assert!(matches!(confirm(&one, &short).await, Standing::Renewed(_)));
    one.release(&long).await.unwrap();
    store.clock.advance(Duration::from_secs(5) - Duration::from_nanos(1));
    conflicts(&one, &mode_claim(Mode::Exclusive), Queue::Leave).await;
    store.clock.advance(Duration::from_nanos(1));
    take(&one, &mode_claim(Mode::Exclusive)).await;
    assert_eq!(store.rows().await, 1);
}

#[tokio::test]
async fn holds_of_all_modes_are_renewed_at_once() {
    let store = Store::new();
    let one = store.open().await;
    let mut holds = Vec::new();
    for (text, mode) in
        [("a", Mode::Exclusive), ("b", permits(2)), ("b", permits(2)), ("c", Mode::Read), ("d", Mode::Write)]
    {
        holds.push(take(&one, &claim_in(text, mode, TTL)).await);
    }
    one.release(&holds[2]).await.unwrap();
    store.clock.advance(TTL / 2);
    let standings = one.renew(&holds.iter().collect::<Vec<_>>()).await;
    let lost: Vec<bool> = standings.iter().map(|standing| *standing.as_ref().unwrap() == Standing::Lost).collect();
    assert_eq!(lost, [false, false, true, false, false]);
    store.clock.advance(TTL - Duration::from_nanos(1));
    conflicts(&one, &claim_in("b", Mode::Exclusive, TTL), Queue::Leave).await;
    contended(&one, &claim_in("c", Mode::Write, TTL), Queue::Leave).await;
}

#[tokio::test]
async fn holds_from_before_a_restart_of_the_host_are_gone() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &mode_claim(permits(1))).await;
    store
        .change(
            "UPDATE dlock_locks SET boot = 'another'; UPDATE dlock_shares SET boot = 'another', expires = expires * 2",
        )
        .await;
    assert_eq!(one.look(&hold.claim.key).await.unwrap().note().cloned(), None);
    let next = take(&one, &mode_claim(permits(1))).await;
    assert_eq!(slot(&next), 0);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    one.release(&next).await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn permits_are_granted_beyond_the_bound_of_the_counter() {
    let store = Store::new();
    let one = store.open().await;
    let before = take(&one, &mode_claim(permits(2))).await;
    store.change("UPDATE dlock_fence SET token = bound").await;
    let hold = take(&one, &mode_claim(permits(2))).await;
    assert!(token(&hold) > token(&before));
    assert_eq!(slot(&hold), 1);
}

#[test]
fn a_killed_process_gives_its_number_back_after_its_ttl() {
    let store = Store::on_real_time();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one = runtime.block_on(store.open());
    let mut child = Child::spawn("permit holder", &[("URL", &store.url())]).unwrap();
    assert_eq!(child.wait_line("slot ", Duration::from_secs(20)).unwrap(), "0");
    let started = std::time::Instant::now();
    child.kill9().unwrap();
    runtime.block_on(async {
        assert_eq!(take(&one, &mode_claim(permits(2))).await.slot, Some(1));
        let next = mode_claim(permits(2));
        loop {
            match one.try_acquire(&next, Queue::Leave).await.unwrap() {
                dlock_contract::Attempt::Acquired(hold) => break assert_eq!(hold.slot, Some(0)),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
            assert!(started.elapsed() < Duration::from_secs(30), "the dead process still has its permit");
        }
    });
}

pub(crate) fn hold_in_child() {
    let url = std::env::var("URL").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hold = runtime.block_on(async {
        let store = Sqlite::open(&url, &Clock::system()).await.unwrap();
        take(&store, &claim_in("a", permits(2), Duration::from_secs(3))).await
    });
    #[expect(clippy::print_stdout, reason = "the parent reads it")]
    {
        println!("slot {}", slot(&hold));
    }
    std::thread::sleep(Duration::from_secs(60));
}
