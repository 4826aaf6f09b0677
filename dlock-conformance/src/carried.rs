//! Stores in which a release also requests the lock for the next caller of its process.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Hold, LockKey, Queue, Released, Wake};

use crate::case::{Case, case};
use crate::cleanup::{abandons, on_our_thread, polled, settled};
use crate::client::Client;
use crate::fixture::{Fixture, TRIES, slowly};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

/// How many callers of one client may overtake other waiters, one after another.
const MOST_PASSES: usize = 16;

pub(crate) const CASES: &[Case] = &[
    case!("a release that asks for the next caller gives it the free lock", carries, gives),
    case!("a release that asks for the next caller puts it behind other waiters", carries, stands),
    case!("a late release asks for the next caller and takes the lock from nobody", carries, too_late),
    case!("a grant to the next caller counts from before the release was sent", carries, counts),
    case!("a grant to the next caller is kept as long as its holder believes", carries, kept),
    case!("the next caller of a release leaves nothing when it gives up", carries, given_up),
    case!("an abandon on dlock's own thread does not overtake the release that asks for its claim", carries, overtaken),
];

async fn gives(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = known_as_waiter(fixture, &key, &one, &other).await?;
    let next = fixture.claim(&key, fixture.long())?;
    let hold = match release_to(fixture, &one, &former, &next).await? {
        (Released::Released, Attempt::Acquired(hold)) => hold,
        answer => {
            return Err(Stop::Failed(format!(
                "a release asked for the next caller of a lock without waiters, and the answer was {answer:?}"
            )));
        }
    };
    if let Some(former) = former.token {
        let token = fixture.token(&hold)?;
        ensure!(token > former.get(), "the lock went to the next caller, and the token went from {former} to {token}");
    }
    other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
    one.renew(&hold, hold.validity).await?;
    one.give_back(&hold).await?;
    fixture.clean(&key, "after a release that asked for the next caller").await
}

async fn stands(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = known_as_waiter(fixture, &key, &one, &other).await?;
    let (waiter, waits) = stand(fixture, &other, &former).await?;
    let (next, wake) = behind(fixture, &one, former).await?;
    let second = other.wait_on(&waiter, Some(waits), SLACK).await?;
    other.give_back(&second).await?;
    let third = one.wait_on(&next, Some(wake), SLACK).await?;
    one.give_back(&third).await
}

async fn too_late(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = known_as_waiter(fixture, &key, &one, &other).await?;
    one.give_back(&former).await?;
    for is_held in [true, false] {
        let held = if is_held { Some(other.take(&fixture.claim(&key, fixture.long())?).await?) } else { None };
        let next = fixture.claim(&key, fixture.long())?;
        let (released, answer) = release_to(fixture, &one, &former, &next).await?;
        let took = matches!(answer, Attempt::Acquired(_));
        if took || released == Released::Released {
            if let Some(held) = &held {
                one.in_time(held.validity)?;
            }
        }
        ensure!(took != is_held, "a late release asked for a lock that was held: {is_held}; it won the lock: {took}");
        ensure!(released == Released::NotOwner, "a late release returned {released:?}");
        drop(answer);
        one.backend.abandon(&next).await?;
        if let Some(held) = held {
            other.renew(&held, held.validity).await?;
            other.give_back(&held).await?;
        }
        fixture.clean(&key, "after a late release").await?;
    }
    Ok(())
}

async fn counts(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let mut hold = known_as_waiter(fixture, &key, &one, &other).await?;
    for _ in 0..TRIES {
        let next = fixture.claim(&key, fixture.long())?;
        let (answer, replied) = slowly(&fixture.clock, release_to(fixture, &one, &hold, &next)).await;
        hold = match answer? {
            (Released::Released, Attempt::Acquired(hold)) => hold,
            answer => return Err(Stop::Failed(format!("the next caller of a lock without waiters got {answer:?}"))),
        };
        if replied.is_none_or(|replied| hold.validity.from < replied) {
            one.give_back(&hold).await?;
            return Ok(());
        }
    }
    one.give_back(&hold).await?;
    Err(Stop::Failed(
        "the grant counts from the reply, so after a slow reply the holder trusts the lock for too long".into(),
    ))
}

async fn kept(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = known_as_waiter(fixture, &key, &one, &other).await?;
    let next = fixture.claim(&key, fixture.long())?;
    // Other cases look at the answer.
    if let (_, Attempt::Acquired(hold)) = release_to(fixture, &one, &former, &next).await? {
        one.kept_as_believed(&hold).await?;
        one.give_back(&hold).await?;
    }
    Ok(())
}

async fn given_up(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = known_as_waiter(fixture, &key, &one, &other).await?;
    let (waiter, waits) = stand(fixture, &other, &former).await?;
    let next = fixture.claim(&key, fixture.long())?;
    drop(release_to(fixture, &one, &former, &next).await?);
    one.backend.abandon(&next).await?;
    let second = other.wait_on(&waiter, Some(waits), SLACK).await?;
    other.give_back(&second).await?;
    fixture.clean(&key, "after the next caller of a release gave up").await
}

/// A release is begun on this thread and dropped, and dlock's own thread abandons the next caller's claim, as the engine does.
async fn overtaken(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    let (exchange, mut given_up) = (one.exchange()?, Vec::new());
    // Which task comes first is also a matter of what ran before.
    for _ in 0..4 {
        let former = known_as_waiter(fixture, &fixture.key()?, &one, &other).await?;
        let next = fixture.claim(&former.claim.key, fixture.long())?;
        let until = fixture.clock.now().after(fixture.long());
        let attempt = async { drop(polled(exchange.release_to(&former, &next, until), 1).await) };
        on_our_thread(attempt, abandons(&one, std::slice::from_ref(&next))).await?;
        // Its release may have been dropped before it left.
        one.give_back(&former).await?;
        given_up.push(next);
    }
    // A request that was overtaken may still have its effect, within a moment.
    pause(300).await;
    settled(fixture, &given_up, 0).await
}

/// The hold of a client that has waited for it, so the store knows how to notify this client.
pub(crate) async fn known_as_waiter(
    fixture: &Fixture<'_>,
    key: &LockKey,
    one: &Client,
    other: &Client,
) -> Tested<Hold> {
    let former = other.take(&fixture.claim(key, fixture.long())?).await?;
    let (waiter, waits) = stand(fixture, one, &former).await?;
    other.give_back(&former).await?;
    one.wait_on(&waiter, Some(waits), SLACK).await
}

/// Joins the queue behind a hold.
async fn stand(fixture: &Fixture<'_>, client: &Client, behind: &Hold) -> Tested<(Arc<Claim>, Wake)> {
    let waiter = fixture.claim(&behind.claim.key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let wake = client.stand(&waiter, until, behind.validity).await?;
    Ok((waiter, wake))
}

async fn release_to(
    fixture: &Fixture<'_>,
    client: &Client,
    hold: &Hold,
    next: &Arc<Claim>,
) -> Tested<(Released, Attempt)> {
    let until = fixture.clock.now().after(fixture.long());
    match client.exchange()?.release_to(hold, next, until).await? {
        (released, Some(answer)) => Ok((released, answer)),
        (_, None) => Err(Stop::Failed(
            "a release did not ask for the next caller, although the store knows it as a waiter".into(),
        )),
    }
}

/// Passes the lock on in this client until a next caller has to wait behind the other waiter.
async fn behind(fixture: &Fixture<'_>, client: &Client, mut hold: Hold) -> Tested<(Arc<Claim>, Wake)> {
    for _ in 0..MOST_PASSES {
        let next = fixture.claim(&hold.claim.key, fixture.long())?;
        hold = match release_to(fixture, client, &hold, &next).await? {
            (Released::Released, Attempt::Acquired(hold)) => hold,
            (Released::Released, Attempt::Contended(wake)) => return Ok((next, wake)),
            answer => {
                return Err(Stop::Failed(format!(
                    "a release asked for the next caller of a lock with other waiters, and the answer was {answer:?}"
                )));
            }
        };
    }
    Err(Stop::Failed(format!("{MOST_PASSES} next callers of one client overtook a waiter of another client")))
}
