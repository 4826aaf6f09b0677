//! A store that is unreachable, and a clock that is wrong.

use std::time::Duration;

use dlock_contract::{Attempt, Error, ErrorKind, Queue, Released, Result, Standing};
use dlock_store::Clock;
use futures::future::join_all;

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::store::Outage;
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a store that is down is an outage, not contention", always, down, disturbs),
    case!("a silent store is reported neither as contention nor as a grant", always, silent, disturbs),
    case!("while the store is down, a lease is unknown and not lost", leases, unknown, disturbs),
    case!(
        "a release whose answer was lost is no loss, and ends when it is asked for again",
        always,
        answer_lost,
        disturbs
    ),
    case!(
        "a client's first release that is swallowed is asked for again until the lock is free",
        always,
        swallowed,
        disturbs
    ),
    case!("a store that answers is ready, and one that is down is not", always, ready, disturbs),
    case!("a store that is ready after a restart grants locks", always, ready_after_restart, disturbs),
    case!("a request that is reported as never sent leaves nothing", always, never_sent, disturbs),
    case!("after an outage the same client works again", always, works_again, disturbs),
    case!("a client's wrong clock changes nothing", always, wrong_clock),
];

/// A client that has not found its store again by then never will find it.
const BOUND: Duration = Duration::from_secs(20);

async fn down(fixture: &Fixture<'_>) -> Tested {
    let client = warm(fixture).await?;
    let _outage = fixture.outage(Outage::Refused).await?;
    refused(fixture, &client).await
}

async fn silent(fixture: &Fixture<'_>) -> Tested {
    let client = warm(fixture).await?;
    let _outage = fixture.outage(Outage::Silent).await?;
    refused(fixture, &client).await
}

async fn refused(fixture: &Fixture<'_>, client: &Client) -> Tested {
    // Twice: the first request may break an open connection, the second one must open a connection.
    for _ in 0..2 {
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        // Long enough to see what a store makes of its own limit for a silent connection.
        let answer = within(Duration::from_millis(2500), client.backend.try_acquire(&claim, Queue::Leave)).await;
        match answer {
            Err(error) => outage(&error)?,
            Ok(Attempt::Contended(_) | Attempt::AlreadyRun) => {
                return Err(Stop::Failed("an unreachable store was reported as contention".into()));
            }
            Ok(Attempt::Acquired(_)) => {
                return Err(Stop::Failed("a lock was granted by an unreachable store".into()));
            }
        }
        if let Err(error) = unanswered(client.backend.abandon(&claim)).await {
            outage(&error)?;
        }
    }
    Ok(())
}

async fn ready(fixture: &Fixture<'_>) -> Tested {
    let client = warm(fixture).await?;
    client.backend.ready().await?;
    // Twice: the first request may break an open connection, the second one must open a connection.
    let down = fixture.outage(Outage::Refused).await?;
    is_not_ready(&client).await?;
    is_not_ready(&client).await?;
    drop(down);
    let end = fixture.clock.now().after(BOUND);
    while let Err(error) = bounded(client.backend.ready()).await {
        ensure!(fixture.clock.now() < end, "the store is back and not ready: {error}");
        pause(100).await;
    }
    // A store that is ready grants locks.
    client.give_back(&client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?).await?;
    // A connection that is open says nothing of the store. Another case looks at this client's way back.
    let _silent = fixture.outage(Outage::Silent).await?;
    is_not_ready(&client).await
}

async fn is_not_ready(client: &Client) -> Tested {
    match unanswered(client.backend.ready()).await {
        Err(error) => outage(&error),
        Ok(health) => Err(Stop::Failed(format!("a store that cannot be reached says: {health}"))),
    }
}

/// A store may refuse all locks for a while after a restart, because it may have forgotten earlier ones.
async fn ready_after_restart(fixture: &Fixture<'_>) -> Tested {
    // No longer ttl than that of this hold was asked for.
    let client = fixture.client().await?;
    let hold = client.take(&fixture.claim(&fixture.key()?, fixture.some_seconds())?).await?;
    fixture.restart().await?;
    let end = fixture.clock.now().after(fixture.takeover(hold.validity.granted) + BOUND);
    while let Err(error) = bounded(client.backend.ready()).await {
        ensure!(fixture.clock.now() < end, "the store is back and not ready: {error}");
        pause(20).await;
    }
    // One request may still find a connection that has ended.
    let mut last = None;
    for _ in 0..3 {
        let claim = fixture.claim(&fixture.key()?, fixture.some_seconds())?;
        match bounded(client.backend.try_acquire(&claim, Queue::Leave)).await {
            Ok(Attempt::Acquired(hold)) => return client.give_back(&hold).await,
            answer => last = Some(answer),
        }
        pause(20).await;
    }
    Err(Stop::Failed(format!("the store says that it is ready, and refuses each free lock: {last:?}")))
}

/// The engine does not abandon such a request, so the request must never reach the store later.
async fn never_sent(fixture: &Fixture<'_>) -> Tested {
    for how in [Outage::Refused, Outage::Silent] {
        let client = warm(fixture).await?;
        let (key, outage) = (fixture.key()?, fixture.outage(how).await?);
        let mut left = false;
        // Over an open connection, and over a connection that must be opened first.
        for _ in 0..2 {
            let claim = fixture.claim(&key, fixture.long())?;
            match unanswered(client.backend.try_acquire(&claim, Queue::Leave)).await {
                Err(error) if !error.may_have_left() => {}
                // Other cases test the other answers.
                _ => {
                    left = true;
                    let _ = unanswered(client.backend.abandon(&claim)).await;
                }
            }
        }
        drop(outage);
        if left {
            continue;
        }
        let stranger = fixture.client().await?;
        let end = fixture.clock.now().after(BOUND);
        let claim = fixture.claim(&key, fixture.long())?;
        loop {
            match bounded(stranger.backend.try_acquire(&claim, Queue::Leave)).await {
                Ok(Attempt::Acquired(hold)) => {
                    stranger.give_back(&hold).await?;
                    break;
                }
                Ok(Attempt::Contended(_) | Attempt::AlreadyRun) => {
                    return Err(Stop::Failed("a request that was reported as never sent holds the lock".into()));
                }
                Err(error) => ensure!(fixture.clock.now() < end, "the store did not come back: {error}"),
            }
            pause(50).await;
        }
    }
    Ok(())
}

async fn unknown(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    let hold = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    {
        let _outage = fixture.outage(Outage::Refused).await?;
        {
            let renewal =
                async { client.backend.renew(&[&hold]).await.pop().unwrap_or_else(|| Err(Error::outage("none"))) };
            match answered(renewal).await {
                Err(error) => outage(&error)?,
                Ok(Standing::Lost) => {
                    return Err(Stop::Failed("a lease was reported as lost by an unreachable store".into()));
                }
                Ok(Standing::Renewed(_)) => {
                    return Err(Stop::Failed("a lease was renewed by an unreachable store".into()));
                }
            }
        }
        match answered(client.backend.release(&hold)).await {
            Err(error) => outage(&error)?,
            Ok(released) => {
                return Err(Stop::Failed(format!("an unreachable store answered a release: {released:?}")));
            }
        }
    }
    // It was never lost.
    let end = fixture.clock.now().after(BOUND);
    while let Err(error) = client.renewal(&hold).await? {
        ensure!(fixture.clock.now() < end, "after an outage a lease was not renewed: {error}");
        pause(50).await;
    }
    client.renew(&hold, hold.validity).await?;
    client.give_back(&hold).await
}

async fn answer_lost(fixture: &Fixture<'_>) -> Tested {
    for how in [Outage::AnswerLost, Outage::AnswerSilent] {
        // A first release may need an answer before its request can leave: that of a statement that is prepared. So one client
        // has released before.
        released_twice(fixture, &[warm(fixture).await?, fixture.client().await?], how).await?;
    }
    Ok(())
}

async fn swallowed(fixture: &Fixture<'_>) -> Tested {
    released_twice(fixture, &[fixture.client().await?], Outage::Silent).await
}

/// Each client releases a lock, without an answer, and again when the outage is over. The engine asks again after an error. The
/// hold may be gone by then, and the second answer may say so. After that answer the engine does nothing more, so the lock must
/// be free.
async fn released_twice(fixture: &Fixture<'_>, clients: &[Client], how: Outage) -> Tested {
    let mut holds = Vec::new();
    for client in clients {
        holds.push((client, client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?));
    }
    let lost = fixture.outage(how).await?;
    // As long as the engine waits for it.
    let releases = holds.iter().map(|(client, hold)| within(Duration::from_secs(2), client.backend.release(hold)));
    for answer in join_all(releases).await {
        match answer {
            Ok(Released::Released) => {}
            Ok(Released::NotOwner) => {
                return Err(Stop::Failed(format!("a release whose answer was lost is reported as a loss ({how:?})")));
            }
            Err(error) => ensure!(error.is_retryable(), "the release is not asked for again ({how:?}): {error}"),
        }
    }
    drop(lost);
    let end = fixture.clock.now().after(BOUND);
    for (client, hold) in &holds {
        while let Err(error) = bounded(client.backend.release(hold)).await {
            ensure!(error.is_retryable(), "the second release failed for good ({how:?}): {error}");
            ensure!(fixture.clock.now() < end, "the second release did not end within {BOUND:?} ({how:?}): {error}");
            pause(50).await;
        }
        let stranger = fixture.client().await?;
        let next = stranger.take_within(&fixture.claim(&hold.claim.key, fixture.long())?, SLACK).await?;
        stranger.give_back(&next).await?;
    }
    Ok(())
}

async fn works_again(fixture: &Fixture<'_>) -> Tested {
    for how in [Outage::Refused, Outage::Silent] {
        let client = warm(fixture).await?;
        let outage = fixture.outage(how).await?;
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        // Other cases test the answers meanwhile.
        let _ = unanswered(client.backend.try_acquire(&claim, Queue::Leave)).await;
        drop(outage);
        let end = fixture.clock.now().after(BOUND);
        loop {
            match bounded(client.backend.try_acquire(&claim, Queue::Leave)).await {
                Ok(Attempt::Acquired(hold)) => {
                    client.give_back(&hold).await?;
                    break;
                }
                Ok(Attempt::Contended(_) | Attempt::AlreadyRun) => {}
                Err(error) => ensure!(error.is_retryable(), "after an outage, a retry failed for good: {error}"),
            }
            ensure!(fixture.clock.now() < end, "the client did not find its store again within {BOUND:?}");
            pause(50).await;
        }
    }
    Ok(())
}

async fn wrong_clock(fixture: &Fixture<'_>) -> Tested {
    const HOUR: i64 = 3_600_000;
    for (behind, ahead) in [(-HOUR, HOUR), (HOUR, -HOUR)] {
        let key = fixture.key()?;
        let one = fixture.client_with(Clock::with_wall_skew(behind)).await?;
        let other = fixture.client_with(Clock::with_wall_skew(ahead)).await?;
        let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
        let next = fixture.claim(&key, fixture.short())?;
        other.refused(&next, Queue::Leave, hold.validity).await?;
        let renewed = one.renew(&hold, hold.validity).await?;
        other.refused(&next, Queue::Leave, renewed).await?;
        one.give_back(&hold).await?;
        let hold = one.take_within(&fixture.claim(&key, fixture.short())?, SLACK).await?;
        other.refused(&next, Queue::Leave, hold.validity).await?;
        other.take_within(&next, fixture.takeover(hold.validity.granted)).await?;
    }
    Ok(())
}

/// A client whose connections are open.
async fn warm(fixture: &Fixture<'_>) -> Tested<Client> {
    let client = fixture.client().await?;
    let hold = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    client.give_back(&hold).await?;
    Ok(client)
}

/// A request as the engine makes it: it is given up after a while, which is an outage too.
async fn bounded<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    within(Duration::from_secs(5), request).await
}

/// A request to a store that is silent or down. Nobody waits long for an answer that cannot come.
async fn unanswered<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    within(Duration::from_secs(1), request).await
}

/// A request to a store that refuses. It is waited for: if it were given up while it waits inside of a file for another
/// process, it would be done after the outage.
async fn answered<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    within(Duration::from_secs(5), request).await
}

async fn within<T>(bound: Duration, request: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(bound, request).await.unwrap_or_else(|_| Err(Error::outage("no answer")))
}

fn outage(error: &Error) -> Tested {
    ensure!(*error.kind() == ErrorKind::Outage, "an unreachable store was reported as: {error}");
    ensure!(error.is_retryable(), "an outage was reported as not retryable: {error}");
    Ok(())
}
