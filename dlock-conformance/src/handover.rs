//! Stores that hand the lock over with the notification.

use std::sync::Arc;

use dlock_contract::{Claim, Hold, Queue, Signal, Wake};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Fixture, TRIES, slowly};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a lock that was handed over has a higher token", grants, token_rises),
    case!("a lock that was handed over can be renewed and released", grants, usable),
    case!("the lease of a lock that was handed over does not count from its notification", grants, counts),
    case!("a lock that was handed over is kept as long as its holder believes", grants, kept),
    case!("a notification that nobody read does not block the next waiter", wakes, untaken),
];

async fn token_rises(fixture: &Fixture<'_>) -> Tested {
    let (other, former, hold) = handed_over(fixture).await?;
    if let Some(former) = former.token {
        let token = fixture.token(&hold)?;
        ensure!(token > former.get(), "the lock was handed over and the token went from {former} to {token}");
    }
    other.give_back(&hold).await
}

async fn usable(fixture: &Fixture<'_>) -> Tested {
    let (other, former, hold) = handed_over(fixture).await?;
    ensure!(hold.claim.owner != former.claim.owner, "the lock was handed over to its former owner");
    let third = fixture.claim(&hold.claim.key, fixture.long())?;
    fixture.client().await?.refused(&third, Queue::Leave, hold.validity).await?;
    other.renew(&hold, hold.validity).await?;
    other.give_back(&hold).await?;
    other.take_within(&third, SLACK).await?;
    Ok(())
}

async fn counts(fixture: &Fixture<'_>) -> Tested {
    let mut is_handed_over = false;
    for _ in 0..TRIES {
        let (one, wake, waiter, other, former) = waiting(fixture).await?;
        let signal = wake.signal.ok_or_else(no_signal)?;
        let mut listening = Box::pin(slowly(&fixture.clock, signal));
        // It listens before the release, and reads the notification late.
        let early = futures::poll!(listening.as_mut());
        ensure!(early.is_pending(), "a waiter had a notification before the release");
        one.give_back(&former).await?;
        let unheard = fixture.if_unheard(&former, no_grant());
        pause(30).await;
        let (news, heard) = tokio::time::timeout(SLACK, listening).await.map_err(|_| unheard)?;
        let Signal::Granted(hold) = news? else {
            other.backend.abandon(&waiter).await?;
            continue;
        };
        is_handed_over = true;
        let from = hold.validity.from;
        other.give_back(&hold).await?;
        if heard.is_none_or(|heard| from < heard) {
            return Ok(());
        }
    }
    if !is_handed_over {
        return Err(no_grant());
    }
    Err(Stop::Failed("a lock that was handed over counts from its notification, so after a late one the holder trusts the lock for too long".into()))
}

async fn kept(fixture: &Fixture<'_>) -> Tested {
    let (other, _, hold) = handed_over(fixture).await?;
    other.kept_as_believed(&hold).await?;
    other.give_back(&hold).await
}

async fn untaken(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let wake = other.stand(&waiter, until, former.validity).await?;
    one.give_back(&former).await?;
    // The notification is on its way or has arrived, and the waiter leaves without reading it.
    pause(50).await;
    drop(wake);
    other.backend.abandon(&waiter).await?;
    let next = one.wait(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    one.give_back(&next).await
}

/// A lock that was handed over to the client, its former hold, and its present one.
async fn handed_over(fixture: &Fixture<'_>) -> Tested<(Client, Hold, Hold)> {
    for _ in 0..TRIES {
        let (one, wake, waiter, other, former) = waiting(fixture).await?;
        one.give_back(&former).await?;
        let unheard = fixture.if_unheard(&former, no_grant());
        let signal = wake.signal.ok_or_else(no_signal)?;
        if let Signal::Granted(hold) = tokio::time::timeout(SLACK, signal).await.map_err(|_| unheard)?? {
            return Ok((other, former, hold));
        }
        // On a busy machine the grant may arrive too late to be trusted, and then the waiter has to ask.
        other.backend.abandon(&waiter).await?;
    }
    Err(no_grant())
}

/// A holder, and the only waiter behind it: the client of the holder, the waiter's wake, claim and client, and the hold.
async fn waiting(fixture: &Fixture<'_>) -> Tested<(Client, Wake, Arc<Claim>, Client, Hold)> {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let wake = other.stand(&waiter, until, former.validity).await?;
    Ok((one, wake, waiter, other, former))
}

fn no_signal() -> Stop {
    Stop::Failed("a waiter got no signal".into())
}

fn no_grant() -> Stop {
    Stop::Failed("a released lock was not handed over to its only waiter".into())
}
