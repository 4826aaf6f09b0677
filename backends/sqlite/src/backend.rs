//! The contract's requests: each becomes a request on a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, Inspect, Keeps, LastSuccess, LockKey, LockState, Origin, Periods, Profile,
    Queue, Released, Result, RunEnd, Standing,
};
use futures::future::BoxFuture;

use crate::inspect::look;
use crate::modes::{acquire, finish, free};
use crate::store::Sqlite;
use crate::{renewals, runs, schema};

impl Backend for Sqlite {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(self.context.database.path.display().to_string())
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(
            self.run(claim, move |connection, context, claim| Box::pin(acquire(connection, context, claim, queue))),
        )
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            match self.renew_all(holds).await {
                Ok(standings) => standings.into_iter().map(Ok).collect(),
                Err(error) => holds.iter().map(|_| Err(renewals::unknown(&error))).collect(),
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let freed =
                self.run(&hold.claim, |connection, context, claim| Box::pin(free(connection, context, claim))).await?;
            Ok(released(freed))
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.abandon_claim(claim))
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        let key = key.clone();
        Box::pin(self.read(|connection, context| Box::pin(async move { look(connection, context, &key).await })))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let database = self.context.database.clone();
        Box::pin(async move {
            let health = self
                .read(move |connection, _| Box::pin(async move { schema::health(connection.conn(), &database).await }))
                .await?;
            Ok(match self.context.wakes.finding().await {
                Some(finding) => health.finding(finding),
                None => health,
            })
        })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // First all that needs no wait: a disk may hang, and then this future is dropped.
            self.context.is_closed.store(true, Ordering::SeqCst);
            let worker = Origin::here().and_then(|here| self.workers.peek(here));
            self.workers.close();
            self.context.wakes.close();
            // In order where that is possible: a connection that is closed later, by its thread, still tidies up files
            // that may be another's by then.
            if let Some(worker) = worker {
                worker.value.close().await;
            }
            self.renewals.close().await;
        })
    }
}

impl Keeps for Sqlite {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.finish(hold, Some(time), run))
    }
}

impl Periods for Sqlite {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.finish(hold, None, Some(run)))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        let key = key.clone();
        Box::pin(self.read(|connection, _| Box::pin(async move { runs::last_success(connection, &key).await })))
    }
}

impl Sqlite {
    async fn finish(&self, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Result<Released> {
        let ended = self
            .run(&hold.claim, move |connection, context, claim| Box::pin(finish(connection, context, claim, keep, run)))
            .await?;
        Ok(released(ended))
    }
}

fn released(freed: bool) -> Released {
    if freed { Released::Released } else { Released::NotOwner }
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;
    use dlock_store::Clock;

    use super::*;

    #[tokio::test]
    async fn waiting_for_the_disk_blocks_no_thread_of_the_caller() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("locks.db").display());
        let sqlite = Sqlite::open(&url, &Clock::system()).await.unwrap();
        let key = LockKey::new("test", Key::text("a")).unwrap();
        let claim = Arc::new(Claim::new(key.clone(), Duration::from_secs(30), "site").unwrap());
        let Attempt::Acquired(hold) = sqlite.try_acquire(&claim, Queue::Leave).await.unwrap() else {
            panic!("refused")
        };
        assert!(matches!(sqlite.renew(&[&hold]).await.remove(0), Ok(Standing::Renewed(_))));
        assert!(sqlite.look(&key).await.unwrap().note().is_some());
        assert_eq!(sqlite.release(&hold).await.unwrap(), Released::Released);
        let waited: Vec<_> = sqlite.context.database.waited.lock().unwrap().iter().cloned().collect();
        assert_eq!(waited, ["dlock-sqlite", "dlock-sqlite-look"]);
    }
}
