//! The contract's requests: each becomes a request on a connection.

use std::sync::Arc;

use dlock_contract::engine::here;
use dlock_contract::{
    Attempt, Backend, Capabilities, Claim, Ending, Hold, Inspect, LastSuccess, LockKey, LockState, Released, Result,
    Stand, Standing,
};
use futures::future::BoxFuture;

use crate::inspect::look;
use crate::requests::{acquire, finish, free};
use crate::store::Sqlite;
use crate::{renewals, runs};

impl Backend for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.run(claim, move |turn, site, claim| Box::pin(acquire(turn, site, claim, stand))))
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
            let freed = self.run(&hold.claim, |turn, site, claim| Box::pin(free(turn, site, claim))).await?;
            Ok(released(freed))
        })
    }

    fn end<'a>(&'a self, hold: &'a Hold, ending: &'a Ending) -> BoxFuture<'a, Result<Released>> {
        let ending = *ending;
        Box::pin(async move {
            let ended =
                self.run(&hold.claim, move |turn, site, claim| Box::pin(finish(turn, site, claim, ending))).await?;
            Ok(released(ended))
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.abandon_claim(claim))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        let key = key.clone();
        Box::pin(self.read(|turn, _| Box::pin(async move { runs::last_success(turn, &key).await })))
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        let key = key.clone();
        Box::pin(self.read(|turn, site| Box::pin(async move { look(turn, site, &key).await })))
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // In order where that is possible: a connection that is closed later, by its thread, still tidies up files
            // that may be another's by then.
            if let Some(line) = here().and_then(|here| self.lines.peek(here)) {
                line.value.close().await;
            }
            self.lines.clear();
            self.renewals.close().await;
        })
    }
}

fn released(freed: bool) -> Released {
    if freed { Released::Released } else { Released::NotOwner }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_contract::{Clock, Key};

    use super::*;

    #[tokio::test]
    async fn the_disk_is_waited_for_on_threads_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("locks.db").display());
        let sqlite = Sqlite::open(&url, &Clock::system()).await.unwrap();
        let key = LockKey::new("test", Key::text("a")).unwrap();
        let claim = Arc::new(Claim::new(key.clone(), Duration::from_secs(30), "site").unwrap());
        let Attempt::Acquired(hold) = sqlite.try_acquire(&claim, Stand::No).await.unwrap() else { panic!("refused") };
        assert!(matches!(sqlite.renew(&[&hold]).await.remove(0), Ok(Standing::Renewed(_))));
        assert!(!sqlite.look(&key).await.unwrap().holders.is_empty());
        assert_eq!(sqlite.release(&hold).await.unwrap(), Released::Released);
        let waited: Vec<_> = sqlite.site.place.waited.lock().unwrap().iter().cloned().collect();
        assert_eq!(waited, ["dlock-sqlite", "dlock-sqlite-look"]);
    }
}
