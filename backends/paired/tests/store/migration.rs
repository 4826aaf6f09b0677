//! Two stores that both decide.

use std::sync::Arc;

use dlock_contract::{Attempt, Backend, Hold, Mode as LockMode, Queue, Released, Standing};
use dlock_memory::Memory;
use dlock_paired::{Migrating, Numbers};
use dlock_testkit::Mode;
use dlock_testkit::holds::{claim, claim_on, confirm, stand, take, token};

use crate::kit::{Holder, Kit, SOON, TTL, abandon, bounded};

fn migrating(kit: &Kit, numbers: Numbers) -> Migrating {
    let stores = Migrating::builder(kit.gate.store.clone(), kit.authority.store.clone());
    stores.numbers(numbers).keep_members_open().build().unwrap()
}

/// Whoever knows one of the stores alone is kept out, and keeps out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_store_keeps_others_out_by_itself() {
    let kit = Kit::new().await;
    let both = migrating(&kit, Numbers::Old);
    let ours = claim("migration", TTL);
    for member in [&kit.gate, &kit.authority] {
        let other = member.taken_by_another(&ours.key).await;
        assert!(matches!(both.try_acquire(&ours, Queue::Leave).await.unwrap(), Attempt::Contended(_)));
        member.store.release(&other).await.unwrap();
    }
    let hold = take(&both, &ours).await;
    for member in [&kit.gate, &kit.authority] {
        let other = claim_on(&ours.key, TTL, |_| ());
        assert!(matches!(member.store.try_acquire(&other, Queue::Leave).await.unwrap(), Attempt::Contended(_)));
    }
    assert_eq!(both.release(&hold).await.unwrap(), Released::Released);
    for member in [&kit.gate, &kit.authority] {
        assert_eq!(member.holder(&ours).await, Holder::Nobody);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_either_is_a_loss_and_frees_the_other() {
    let kit = Kit::new().await;
    let both = migrating(&kit, Numbers::Old);
    for (lost, kept) in [(&kit.gate, &kit.authority), (&kit.authority, &kit.gate)] {
        let ours = claim("half lost", TTL);
        let hold = take(&both, &ours).await;
        lost.evict(&ours).await;
        assert_eq!(confirm(&both, &hold).await, Standing::Lost);
        kept.until(&ours, Holder::Nobody).await;
        let hold = take(&both, &ours).await;
        lost.evict(&ours).await;
        assert_eq!(both.release(&hold).await.unwrap(), Released::NotOwner);
        assert_eq!(kept.holder(&ours).await, Holder::Nobody);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_either_is_down_nothing_is_granted_and_nothing_is_lost() {
    let kit = Kit::new().await;
    let both = {
        let (old, new) = (crate::kit::open(kit.gate.url()).await, crate::kit::open(kit.authority.url()).await);
        Migrating::builder(old, new).build().unwrap()
    };
    for (number, member) in [&kit.gate, &kit.authority].into_iter().enumerate() {
        let held = claim(&format!("half down {number}"), TTL);
        let hold = take(&both, &held).await;
        member.cut(Mode::Refuse);
        let ours = claim(&format!("half down, free {number}"), TTL);
        assert!(bounded(both.try_acquire(&ours, Queue::Leave)).await.is_err());
        assert!(bounded(async { both.renew(&[&hold]).await.remove(0) }).await.is_err());
        member.mend();
        abandon(&both, &ours).await;
        for member in [&kit.gate, &kit.authority] {
            member.until(&ours, Holder::Nobody).await;
        }
        let end = dlock_store::Clock::system().now().after(SOON);
        while !matches!(both.renew(&[&hold]).await.remove(0), Ok(Standing::Renewed(_))) {
            assert!(dlock_store::Clock::system().now() < end, "a hold was not renewed after an outage");
        }
        assert_eq!(both.release(&hold).await.unwrap(), Released::Released);
    }
}

/// The tokens are those of one store, and so they rise together with those of the processes that know it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_with_those_of_the_store_that_they_come_from() {
    let kit = Kit::new().await;
    for (numbers, member) in [(Numbers::Old, &kit.gate), (Numbers::New, &kit.authority)] {
        let both: Arc<dyn Backend> = Arc::new(migrating(&kit, numbers));
        let key = claim("tokens", TTL).key.clone();
        let mut last = 0;
        for _ in 0..3 {
            for store in [&member.store, &both] {
                let claim = claim_on(&key, TTL, |_| ());
                let Attempt::Acquired(hold) = store.try_acquire(&claim, Queue::Leave).await.unwrap() else {
                    panic!("a free lock was refused")
                };
                assert!(token(&hold) > last, "the token went from {last} to {} ({numbers:?})", token(&hold));
                last = token(&hold);
                store.release(&hold).await.unwrap();
            }
        }
    }
}

/// A waiter that has the old store waits for the new one, and hears of its release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_comes_through_both() {
    let kit = Kit::new().await;
    let both = migrating(&kit, Numbers::Old);
    let ours = claim("through both", TTL);
    let in_old = kit.gate.taken_by_another(&ours.key).await;
    let in_new = kit.authority.taken_by_another(&ours.key).await;
    let wake = stand(&both, &ours).await;
    kit.gate.store.release(&in_old).await.unwrap();
    kit.gate.until(&ours, Holder::Ours).await;
    assert_eq!(kit.authority.holder(&ours).await, Holder::Other);
    drop(wake);
    kit.authority.store.release(&in_new).await.unwrap();
    let hold = dlock_testkit::holds::wait(&both, &ours, SOON).await;
    both.release(&hold).await.unwrap();
}

/// Worker ids are made of slots: no two holders of a permit may have the same one, in each fleet that the page allows for
/// functions that use them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_holders_of_a_permit_have_one_slot_in_a_mixed_fleet() {
    let kit = Kit::new().await;
    let (redis, memory) = (kit.gate.store.clone(), Arc::new(Memory::new()) as Arc<dyn Backend>);
    for [old, new] in [[redis.clone(), memory.clone()], [memory, redis]] {
        let both = |numbers| {
            let stores = Migrating::builder(old.clone(), new.clone()).numbers(numbers).keep_members_open();
            Arc::new(stores.build().unwrap()) as Arc<dyn Backend>
        };
        let fleets = [
            ("the old store, and the migration", vec![old.clone(), both(Numbers::Old)]),
            ("the migration", vec![both(Numbers::Old), both(Numbers::Old)]),
            ("the migration with numbers=new", vec![both(Numbers::New), both(Numbers::New)]),
            ("the migration with numbers=new, and the new store", vec![both(Numbers::New), new.clone()]),
        ];
        for (fleet, members) in fleets {
            let key = claim("workers", TTL).key.clone();
            let mut random = fastrand::Rng::with_seed(32);
            let mut held: Vec<(&Arc<dyn Backend>, Hold)> = Vec::new();
            for _ in 0..60 {
                if !held.is_empty() && random.bool() {
                    let (member, hold) = held.swap_remove(random.usize(..held.len()));
                    assert_eq!(member.release(&hold).await.unwrap(), Released::Released);
                    continue;
                }
                let member = random.choice(&members).unwrap();
                let claim = claim_on(&key, TTL, |claim| claim.mode = LockMode::permits(6));
                if let Attempt::Acquired(hold) = member.try_acquire(&claim, Queue::Leave).await.unwrap() {
                    let slot = hold.slot.unwrap();
                    assert!(held.iter().all(|(_, other)| other.slot != Some(slot)), "{fleet}: two holders have {slot}");
                    held.push((member, hold));
                }
            }
        }
    }
}
