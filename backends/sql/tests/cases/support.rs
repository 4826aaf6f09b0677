//! Helpers that several of the cases need.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Claim, Hold, Keeps, OncePer, Periods, Queue, Released, RunEnd, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::wait_until;

use super::kit::{Database, NOW, Store, TTL, key};

/// The lease of a row is over at once, as if its time had passed.
pub(crate) const EXPIRE: &str = "UPDATE dlock_locks SET expires_us = 1";

impl Database {
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.lines(sql).await[0].parse().unwrap()
    }

    /// The names of the rows that somebody holds.
    pub(crate) async fn held(&self) -> Vec<String> {
        self.lines(&format!("SELECT k FROM dlock_locks WHERE owner IS NOT NULL AND expires_us > {NOW} ORDER BY k"))
            .await
    }

    pub(crate) async fn tokens(&self) -> Vec<i64> {
        self.lines("SELECT token FROM dlock_locks ORDER BY k").await.iter().map(|line| line.parse().unwrap()).collect()
    }

    pub(crate) async fn until_ended(&self, sessions: &[String]) {
        wait_until("the sessions end", async || {
            let left = self.sessions().await;
            !sessions.iter().any(|session| left.contains(session))
        })
        .await
        .unwrap();
    }

    /// A claim for one start in each period.
    pub(crate) fn run_claim(&self, text: &str, period: Duration) -> Arc<Claim> {
        claim_on(&key(self, text), TTL, |claim| claim.once_per = Some(Box::new(OncePer::new(period))))
    }
}

/// Asks once for a lock that nobody waits for. `None`: somebody has it.
pub(crate) async fn attempt(store: &Store, claim: &Arc<Claim>) -> dlock::Result<Option<Hold>> {
    Ok(match store.try_acquire(claim, Queue::Leave).await? {
        Attempt::Acquired(hold) => Some(hold),
        _ => None,
    })
}

/// Fails unless somebody else has the lock.
pub(crate) async fn is_refused(store: &Store, claim: &Arc<Claim>) {
    assert!(attempt(store, claim).await.unwrap().is_none(), "two holders");
}

/// Undoes an attempt. The engine asks again too, as long as the answer is not known.
pub(crate) async fn abandon(store: &Store, claim: &Arc<Claim>) {
    wait_until("the attempt is undone", async || store.abandon(claim).await.is_ok()).await.unwrap();
}

/// The stores see the same leases and the same tokens at once, also the one whose session is older than the setting.
pub(crate) async fn lease_cycle(one: &Store, other: &Store, before: &Store, database: &Database, text: &str) {
    let hour = Duration::from_secs(3600);
    let hold = take(one, &database.claim(text, TTL)).await;
    for store in [other, before] {
        let Attempt::Contended(wake) = store.try_acquire(&database.claim(text, TTL), Queue::Leave).await.unwrap()
        else {
            panic!("two holders")
        };
        let left = wake.lease_left.unwrap();
        assert!(left <= TTL && left > TTL / 2, "{left:?} are left of {TTL:?}");
    }
    assert!(matches!(confirm(one, &hold).await, Standing::Renewed(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let next = take(other, &database.claim(text, TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(other.keep(&next, hour, None).await.unwrap(), Released::Released);
    is_refused(one, &database.claim(text, TTL)).await;
    let run = take(one, &database.run_claim(&format!("run {text}"), hour)).await;
    one.end_run(&run, RunEnd::Succeeded { took: TTL }).await.unwrap();
    let again = before.try_acquire(&database.run_claim(&format!("run {text}"), hour), Queue::Leave).await.unwrap();
    assert!(matches!(again, Attempt::AlreadyRun), "{again:?}");
}
