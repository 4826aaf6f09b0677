//! Many at once, on several connections, watched by a checker.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::Mode;
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue};
use dlock_testkit::holds::token;

use crate::store::{Store, TTL, mode_claim, permits, slot};

async fn wait(store: &impl Backend, claim: &Arc<Claim>, until: Queue) -> Hold {
    loop {
        if let Attempt::Acquired(hold) = store.try_acquire(claim, until).await.unwrap() {
            return hold;
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(200..3000))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_tasks_share_three_permits() {
    let store = Store::on_real_time();
    let backends = [Arc::new(store.open().await), Arc::new(store.open().await)];
    let until = Queue::until(store.clock.now().after(TTL));
    let inside = Arc::new(AtomicU32::new(0));
    let taken = Arc::new(Mutex::new([None; 3]));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20_usize {
        let (one, inside, taken, tokens) =
            (backends[number % 2].clone(), inside.clone(), taken.clone(), tokens.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let hold = wait(&*one, &mode_claim(permits(3)), until).await;
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 3, "more than three inside");
                let slot = usize::try_from(slot(&hold)).unwrap();
                assert_eq!(taken.lock().unwrap()[slot].replace(number), None, "slot {slot} was given twice");
                tokens.lock().unwrap().push((slot, token(&hold)));
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1000))).await;
                assert_eq!(taken.lock().unwrap()[slot].take(), Some(number));
                inside.fetch_sub(1, Ordering::SeqCst);
                one.release(&hold).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let tokens = std::mem::take(&mut *tokens.lock().unwrap());
    for slot in 0..3 {
        let of_slot: Vec<u64> = tokens.iter().filter(|(of, _)| *of == slot).map(|(_, token)| *token).collect();
        assert!(of_slot.windows(2).all(|pair| pair[0] < pair[1]), "the tokens of slot {slot} do not rise");
        assert!(of_slot.len() > 20, "slot {slot} was hardly used");
    }
    assert_eq!(store.rows().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_never_overlap() {
    let store = Store::on_real_time();
    let backends = [Arc::new(store.open().await), Arc::new(store.open().await)];
    let until = Queue::until(store.clock.now().after(TTL));
    // Readers count up; a writer is minus one million.
    let inside = Arc::new(AtomicI64::new(0));
    let most = Arc::new(AtomicI64::new(0));
    let written = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..12_usize {
        let (one, inside, most, written) =
            (backends[number % 2].clone(), inside.clone(), most.clone(), written.clone());
        let mode = if number % 4 == 0 { Mode::Write } else { Mode::Read };
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let hold = wait(&*one, &mode_claim(mode), until).await;
                let step = if mode == Mode::Write { -1_000_000 } else { 1 };
                let before = inside.fetch_add(step, Ordering::SeqCst);
                match mode {
                    Mode::Write => {
                        assert_eq!(before, 0, "a writer was not alone");
                        let last = written.swap(token(&hold), Ordering::SeqCst);
                        assert!(last < token(&hold), "a writer's token does not rise");
                    }
                    _ => {
                        assert!(before >= 0, "a reader beside a writer");
                        assert!(written.load(Ordering::SeqCst) < token(&hold), "a reader's token is below a writer's");
                        most.fetch_max(before + 1, Ordering::SeqCst);
                    }
                }
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
                inside.fetch_sub(step, Ordering::SeqCst);
                one.release(&hold).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) > 1, "readers were never beside each other");
    assert_eq!(store.rows().await, 0);
}

/// The holders inside know which family has the key: no two at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_families_never_have_one_key_at_once() {
    let store = Store::on_real_time();
    let families = [Mode::Exclusive, Mode::Read, permits(2), permits(3)];
    let inside = Arc::new(Mutex::new(Vec::<Mode>::new()));
    let mut tasks = Vec::new();
    for number in 0..8_usize {
        let (one, inside) = (store.open().await, inside.clone());
        let mode = families[number % 4];
        tasks.push(tokio::spawn(async move {
            let mut wins = 0;
            while wins < 10 {
                if let Ok(Attempt::Acquired(hold)) = one.try_acquire(&mode_claim(mode), Queue::Leave).await {
                    {
                        let mut inside = inside.lock().unwrap();
                        assert!(inside.iter().all(|other| other.mixes_with(mode)), "{mode:?} beside {inside:?}");
                        inside.push(mode);
                    }
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..500))).await;
                    {
                        let mut inside = inside.lock().unwrap();
                        let at = inside.iter().position(|other| *other == mode).unwrap();
                        inside.swap_remove(at);
                    }
                    one.release(&hold).await.unwrap();
                    wins += 1;
                }
                tokio::time::sleep(Duration::from_micros(fastrand::u64(500..4000))).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.rows().await, 0);
}
