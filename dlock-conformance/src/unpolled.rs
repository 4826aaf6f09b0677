//! A future that is alive and not polled, as in a `select!` whose other branch runs. It must not delay other callers.

use std::future::Future;
use std::sync::Arc;

use dlock_contract::{Claim, Queue};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] =
    &[case!("a caller whose future is not polled delays no other caller", always, unpolled)];

/// Requests that their callers stop polling, each after a number of polls.
const POLLS: std::ops::RangeInclusive<usize> = 1..=3;

/// The requests are left in the middle, one after the other. Each has its own client, because some requests are slow
/// only the first time, such as those that create a lease.
async fn unpolled(fixture: &Fixture<'_>) -> Tested {
    for polls in POLLS {
        let (client, claim) = (fixture.client().await?, fixture.claim(&fixture.key()?, fixture.long())?);
        let left = client.backend.try_acquire(&claim, Queue::Leave);
        leave(fixture, &client, "an attempt", polls, left).await?;
        client.backend.abandon(&claim).await?;
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        let left = client.backend.try_acquire(&claim, Queue::Leave);
        leave(fixture, &client, "an attempt of a client that has asked before", polls, left).await?;
        client.backend.abandon(&claim).await?;

        let (client, holder) = (fixture.client().await?, fixture.client().await?);
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        let hold = holder.take(&claim).await?;
        let waiter = fixture.claim(&claim.key, fixture.long())?;
        let until = Queue::until(fixture.clock.now().after(fixture.long()));
        leave(fixture, &client, "a refused attempt", polls, client.backend.try_acquire(&waiter, until)).await?;
        client.backend.abandon(&waiter).await?;

        leave(fixture, &holder, "a renewal", polls, holder.backend.renew(&[&hold])).await?;
        leave(fixture, &holder, "a look at the lock", polls, holder.backend.look(&claim.key)).await?;
        leave(fixture, &holder, "a release", polls, holder.backend.release(&hold)).await?;
        leave(fixture, &holder, "an abandon", polls, holder.backend.abandon(&claim)).await?;
    }
    Ok(())
}

/// Polls a request this many times and leaves it. Meanwhile the same client must serve all other callers. Then drops
/// it.
async fn leave<F: Future>(fixture: &Fixture<'_>, client: &Client, what: &str, polls: usize, request: F) -> Tested {
    let mut request = std::pin::pin!(request);
    for poll in 0..polls {
        if poll > 0 {
            pause(2).await;
        }
        if futures::poll!(request.as_mut()).is_ready() {
            break;
        }
    }
    // With the same ttl, because some stores share a lease or a session among such holds.
    let claim = fixture.claim(&fixture.key()?, fixture.long())?;
    match tokio::time::timeout(SLACK * 4, cycle(client, &claim)).await {
        Ok(tested) => tested,
        Err(_) => {
            let text = format!("{what} that was polled {polls} times and then left alone delayed another key");
            Err(Stop::Failed(text))
        }
    }
}

async fn cycle(client: &Client, claim: &Arc<Claim>) -> Tested {
    let hold = client.take(claim).await?;
    client.renew(&hold, hold.validity).await?;
    ensure!(client.backend.look(&claim.key).await?.note().cloned().is_some(), "a held lock has no holder");
    client.give_back(&hold).await
}
