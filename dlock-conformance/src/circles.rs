//! Stores that find calls which wait for each other's locks: one of them gives way, and the other one goes on.

use std::sync::Arc;

use dlock_contract::{Claim, ErrorKind, Hold, HoldId, LockKey, Result, Signal};
use futures::future::{BoxFuture, Either, select};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::tested::{SLACK, Stop, Tested, ensure};

pub(crate) const CASES: &[Case] = &[
    case!("of two calls that wait for each other's locks one gives way and the other one goes on", circles, circle),
    case!("a wait inside of another hold that closes no circle ends as any other", circles, no_circle),
];

/// A call that keeps a lock and wants another one.
struct Call {
    client: Client,
    keeps: Hold,
    wants: Arc<Claim>,
}

impl Call {
    async fn begin(fixture: &Fixture<'_>, keeps: &LockKey, wants: &LockKey) -> Tested<Self> {
        let client = fixture.client().await?;
        let keeps = client.take(&fixture.claim(keeps, fixture.long())?).await?;
        let inside = |claim: &mut Claim| claim.set_inside(vec![HoldId::of(&keeps.claim.owner)]);
        let wants = Claim::clone(&*fixture.claim(wants, fixture.long())?).with(inside);
        Ok(Self { client, keeps, wants: Arc::new(wants) })
    }

    /// Waits for what another call keeps.
    async fn waits(&self, fixture: &Fixture<'_>, other: &Self) -> Tested<BoxFuture<'static, Result<Signal>>> {
        let until = fixture.clock.now().after(fixture.long());
        let wake = self.client.stand(&self.wants, until, other.keeps.validity).await?;
        wake.signal.ok_or_else(|| Stop::Failed("a waiter has no signal, although the profile promises news".into()))
    }

    /// Ends with both of its locks, after news of the one that it wants.
    async fn goes_on(&self, news: Result<Signal>) -> Tested {
        let hold = match news {
            Ok(Signal::Granted(hold)) => hold,
            Ok(Signal::Ask) => self.client.wait(&self.wants, SLACK).await?,
            Err(error) => return Err(Stop::Failed(format!("a call whose lock became free was told: {error}"))),
        };
        self.client.renew(&self.keeps, self.keeps.validity).await?;
        self.client.give_back(&hold).await?;
        self.client.give_back(&self.keeps).await?;
        Ok(())
    }

    async fn gives_way(&self) -> Tested {
        self.client.renew(&self.keeps, self.keeps.validity).await?;
        self.client.backend.abandon(&self.wants).await?;
        self.client.give_back(&self.keeps).await?;
        Ok(())
    }
}

async fn circle(fixture: &Fixture<'_>) -> Tested {
    let (a, b) = (fixture.key()?, fixture.key()?);
    let (one, other) = (Call::begin(fixture, &a, &b).await?, Call::begin(fixture, &b, &a).await?);
    let (first, second) = (one.waits(fixture, &other).await?, other.waits(fixture, &one).await?);
    let told = tokio::time::timeout(SLACK, select(first, second)).await;
    let told = told.map_err(|_| Stop::Failed("two calls wait for each other's locks, and neither was told".into()))?;
    let (news, rest, gives_way, goes_on) = match told {
        Either::Left((news, rest)) => (news, rest, &one, &other),
        Either::Right((news, rest)) => (news, rest, &other, &one),
    };
    let error = news.err().ok_or_else(|| Stop::Failed("a lock that another call holds was granted".into()))?;
    ensure!(*error.kind() == ErrorKind::Conflict, "a call that waits in a circle was told: {error}");
    ensure!(error.is_retryable(), "the conflict of a call that may be begun anew is no retryable error");
    gives_way.gives_way().await?;
    let late = |_| Stop::Failed("the other call in the circle did not get the lock that became free".into());
    goes_on.goes_on(tokio::time::timeout(SLACK, rest).await.map_err(late)?).await?;
    fixture.clean(&a, "after the circle").await?;
    fixture.clean(&b, "after the circle").await
}

async fn no_circle(fixture: &Fixture<'_>) -> Tested {
    let (a, b) = (fixture.key()?, fixture.key()?);
    let (one, other) = (Call::begin(fixture, &a, &b).await?, Call::begin(fixture, &b, &a).await?);
    let signal = one.waits(fixture, &other).await?;
    other.client.give_back(&other.keeps).await?;
    let late = |_| Stop::Failed("a waiter did not hear of the release".into());
    one.goes_on(tokio::time::timeout(SLACK, signal).await.map_err(late)?).await
}
