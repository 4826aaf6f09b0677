//! Releases that come at once leave together.

use std::collections::HashSet;

use dlock::Mode;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, take};
use futures::future::join_all;

use crate::kit::{TTL, line, lock, path, process, raw, shared};

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
