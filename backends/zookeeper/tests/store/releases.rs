//! Releases that come at once leave together, and a release that fails may be asked for again.

use std::collections::HashSet;
use std::time::Duration;

use dlock::backends::zookeeper::client::{Acl, AuthId, Permission};
use dlock::{Key, LockKey, Mode};
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{claim_on, take};
use dlock_testkit::{Proxy, wait_until};
use futures::future::{join, join_all};

use crate::kit::{TTL, line, lock, opened, path, process, raw, shared};

const HOLDS: usize = 40;
const LOST: usize = 20;

#[tokio::test]
async fn releases_share_transactions_and_a_lost_hold_among_them_is_told_alone() {
    let (one, raw) = (process().await, raw(&shared()).await);
    let keys: Vec<_> = (0..HOLDS).map(|_| lock("at once")).collect();
    let mode = |at| if at % 8 == 0 { Mode::permits(1) } else { Mode::Exclusive };
    let claims: Vec<_> =
        keys.iter().zip(0..).map(|(key, at)| claim_on(key, TTL, |claim| claim.mode = mode(at))).collect();
    let take_all = async || join_all(claims.iter().map(|claim| take(&one, claim))).await;
    let paths: Vec<_> = keys.iter().map(|key| path(&one, key)).collect();

    let holds = take_all().await;
    for released in join_all(holds.iter().map(|hold| one.release(hold))).await {
        assert_eq!(released.unwrap(), Released::Released);
    }
    let changes = join_all(paths.iter().map(|path| raw.check_stat(path))).await;
    let changes: HashSet<_> = changes.into_iter().flat_map(Result::unwrap).map(|stat| stat.pzxid).collect();
    assert!(changes.len() < HOLDS, "each release was a transaction of its own");

    let holds = take_all().await;
    let [node] = &line(&raw, &paths[LOST]).await[..] else { panic!("no holder") };
    raw.delete(&format!("{}/{node}", paths[LOST]), None).await.unwrap();
    for (at, released) in join_all(holds.iter().map(|hold| one.release(hold))).await.into_iter().enumerate() {
        let expected = if at == LOST { Released::NotOwner } else { Released::Released };
        assert_eq!(released.unwrap(), expected, "{at}");
        assert!(line(&raw, &paths[at]).await.is_empty(), "{at}");
    }
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_told_by_the_next_one() {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    let (one, raw) = (opened(&url).await, raw(&shared()).await);
    for mode in [Mode::Exclusive, Mode::permits(1)] {
        let key = lock("lost answer");
        // The session lives on meanwhile.
        let hold = take(&one, &claim_on(&key, TTL * 20, |claim| claim.mode = mode)).await;
        proxy.set(dlock_testkit::Mode::DropReplies);
        assert!(one.release(&hold).await.is_err(), "the answer was not dropped");
        proxy.set(dlock_testkit::Mode::Pass);
        wait_until("the release to end", async || match one.release(&hold).await {
            // The release before may have ended at its look at the slot.
            Ok(released) => {
                assert_eq!(released, Released::Released);
                true
            }
            Err(_) => false,
        })
        .await
        .unwrap();
        assert!(line(&raw, &path(&one, &key)).await.is_empty());
    }
}

#[tokio::test]
async fn a_lost_permit_whose_node_could_not_be_deleted_is_deleted_by_the_next_release() {
    let (one, raw) = (process().await, raw(&shared()).await);
    let key = lock("no delete");
    let hold = take(&one, &claim_on(&key, TTL * 20, |claim| claim.mode = Mode::permits(1))).await;
    let path = path(&one, &key);
    let nodes = line(&raw, &path).await;
    let slot = nodes.iter().find(|name| name.contains("slot")).expect("no slot");
    raw.delete(&format!("{path}/{slot}"), None).await.unwrap();
    let may = |permission| [Acl::new(permission, AuthId::anyone())];
    raw.set_acl(&path, &may(Permission::READ | Permission::ADMIN), None).await.unwrap();
    assert!(one.release(&hold).await.is_err(), "the node of the queue was deleted");
    raw.set_acl(&path, &may(Permission::ALL), None).await.unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(line(&raw, &path).await.is_empty());
}

/// One delete of the slot is slow to arrive. Meanwhile, an operator deletes the nodes of its holder.
#[tokio::test]
async fn a_slow_delete_of_a_lost_permit_does_not_hit_the_next_holders_slot() {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    let (one, other, raw) = (opened(&url).await, process().await, raw(&shared()).await);
    let key = lock("slow delete");
    let permit = || claim_on(&key, TTL * 20, |claim| claim.mode = Mode::permits(1));
    let first = permit();
    take(&one, &first).await;
    let path = path(&one, &key);
    // The client takes a connection for lost after 1.5 s without an answer.
    let way = Duration::from_secs(1);
    proxy.set(dlock_testkit::Mode::Delay { to_server: way, to_client: Duration::ZERO });
    let next = async {
        // It has looked at its slot by then, and the deletes are under way.
        tokio::time::sleep(way * 3 / 2).await;
        for node in line(&raw, &path).await {
            // The slow delete may have come before this one.
            let deleted = raw.delete(&format!("{path}/{node}"), None).await;
            assert!(matches!(deleted, Ok(()) | Err(dlock::backends::zookeeper::client::Error::NoNode)), "{deleted:?}");
        }
        take(&other, &permit()).await
    };
    // On a slow machine the server answers too late, and the engine asks again.
    let abandoned = wait_until("it is abandoned", async || match one.abandon(&first).await {
        Ok(()) => true,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    });
    let (abandoned, next) = join(abandoned, next).await;
    abandoned.unwrap();
    assert!(matches!(other.renew(&[&next]).await[..], [Ok(Standing::Renewed(_))]), "the slot of the next was deleted");
    other.release(&next).await.unwrap();
}

#[tokio::test]
async fn many_permits_of_the_longest_key_are_renewed_together() {
    let one = process().await;
    // A slash takes three bytes of the path.
    let text: &'static str = "/".repeat(4000).leak();
    let key = LockKey::new(&format!("t{}", fastrand::u64(..)), Key::text(text)).unwrap();
    let mut holds = Vec::new();
    for _ in 0..64 {
        holds.push(take(&one, &claim_on(&key, TTL * 20, |claim| claim.mode = Mode::permits(64))).await);
    }
    let all: Vec<_> = holds.iter().collect();
    // A busy machine may be late with an answer. A request that is too long would break the connection each time.
    wait_until("the renewals", async || {
        one.renew(&all).await.iter().all(|standing| matches!(standing, Ok(Standing::Renewed(_))))
    })
    .await
    .unwrap();
    join_all(holds.iter().map(|hold| one.release(hold))).await;
}
