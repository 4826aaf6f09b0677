//! Stores that hand the lock over with the notification.

use dlock_contract::{Hold, Queue, Signal, Wake};

use crate::case::Case;
use crate::client::Client;
use crate::fixture::{Fixture, SLACK, Stop, Tested, case, ensure, pause, slowly};

pub(crate) const CASES: &[Case] = &[
    case!("a lock that was handed over has a higher token", grants, token_rises),
    case!("a lock that was handed over can be renewed and released", grants, usable),
    case!("the lease of a lock that was handed over does not count from its notification", grants, counts),
    case!("a notification that nobody read does not block the next waiter", wakes, untaken),
];

async fn token_rises(fixture: &Fixture<'_>) -> Tested {
    let (_, mut wake, other, former) = waiting(fixture).await?;
    let hold = granted(&mut wake).await?;
    if let Some(former) = former.token {
        let token = fixture.token(&hold)?;
        ensure!(token > former.get(), "the lock was handed over and the token went from {former} to {token}");
    }
    other.give_back(&hold).await?;
    Ok(())
}

async fn usable(fixture: &Fixture<'_>) -> Tested {
    let (_, mut wake, other, former) = waiting(fixture).await?;
    let hold = granted(&mut wake).await?;
    drop(wake);
    ensure!(hold.claim.owner != former.claim.owner, "the lock was handed over to its former owner");
    let third = fixture.claim(&hold.claim.key, fixture.long())?;
    fixture.client().await?.refused(&third, Queue::Leave, hold.validity).await?;
    other.renew(&hold, hold.validity).await?;
    other.give_back(&hold).await?;
    other.take_within(&third, SLACK).await?;
    Ok(())
}

async fn counts(fixture: &Fixture<'_>) -> Tested {
    for _ in 0..5 {
        let (one, wake, other, former) = waiting_still(fixture).await?;
        let signal = wake.signal.ok_or_else(no_signal)?;
        let mut listening = Box::pin(slowly(&fixture.clock, signal));
        // It listens before the release, and reads the notification late.
        let early = futures::poll!(listening.as_mut());
        ensure!(early.is_pending(), "a waiter had a notification before the release");
        one.give_back(&former).await?;
        pause(30).await;
        let (news, heard) = tokio::time::timeout(SLACK, listening).await.map_err(|_| no_grant())?;
        let Signal::Granted(hold) = news? else { return Err(no_grant()) };
        let from = hold.validity.from;
        other.give_back(&hold).await?;
        if heard.is_none_or(|heard| from < heard) {
            return Ok(());
        }
    }
    Err(Stop::Failed("a lock that was handed over counts from its notification, so after a late one the holder trusts the lock for too long".into()))
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
    one.give_back(&next).await?;
    Ok(())
}

/// A waiter whose predecessor has just released the lock.
async fn waiting(fixture: &Fixture<'_>) -> Tested<(Client, Wake, Client, Hold)> {
    let (one, wake, other, former) = waiting_still(fixture).await?;
    one.give_back(&former).await?;
    Ok((one, wake, other, former))
}

async fn waiting_still(fixture: &Fixture<'_>) -> Tested<(Client, Wake, Client, Hold)> {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let wake = other.stand(&waiter, until, former.validity).await?;
    Ok((one, wake, other, former))
}

async fn granted(wake: &mut Wake) -> Tested<Hold> {
    let signal = wake.signal.take().ok_or_else(no_signal)?;
    match tokio::time::timeout(SLACK, signal).await.map_err(|_| no_grant())?? {
        Signal::Granted(hold) => Ok(hold),
        Signal::Ask => Err(no_grant()),
    }
}

fn no_signal() -> Stop {
    Stop::Failed("a waiter got no signal".into())
}

fn no_grant() -> Stop {
    Stop::Failed("a released lock was not handed over to its only waiter".into())
}
