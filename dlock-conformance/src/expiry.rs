//! How long a hold lasts, and from when it counts.

use std::time::Duration;

use dlock_contract::{Attempt, Queue};

use crate::case::{Case, case};
use crate::fixture::{Fixture, TRIES, slowly};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("no second owner comes in before the holder's lease has ended", always, not_earlier),
    case!("a silent holder's lock goes to the next owner in time", always, taken_over),
    case!("a renewal prolongs the lock in the store", always, renewal_prolongs),
    case!("a renewal after the end is Lost and creates nothing", always, renewal_after_end),
    case!("a renewal after an operator took the lock is Lost and creates nothing", always, renewal_after_eviction),
    case!("a late renewal prolongs no other owner's lock", leases, renewal_for_another),
    case!("a lock that an operator freed goes to the next owner at once", always, evicted),
    case!("a grant has the ttl and the claim that were asked for", always, as_asked),
    case!("the store keeps a lease of any ttl as long as its holder believes", leases, any_ttl),
    case!("a grant counts from before the request", always, grant_counts),
    case!("a renewal counts from before the request", always, renewal_counts),
    case!("a refused owner hears of no longer lease than the holder's ttl", always, lease_left),
];

async fn not_earlier(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    let next = fixture.claim(&key, fixture.short())?;
    let end = fixture.clock.now().after(fixture.takeover(fixture.short()));
    loop {
        let asked = fixture.clock.now();
        if let Attempt::Acquired(_) = other.ask(&next, Queue::Leave).await? {
            break;
        }
        ensure!(asked < end, "a silent holder's lock was not granted again");
        pause(10).await;
    }
    let early = hold.validity.deadline().since(fixture.clock.now());
    ensure!(early.is_zero(), "another owner got the lock {early:?} before the deadline of the first one");
    Ok(())
}

async fn taken_over(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    // Renewed once, so that this is not the lease of the grant.
    let renewed = one.renew(&hold, hold.validity).await?;
    let left = renewed.from.after(fixture.takeover(renewed.granted)).since(fixture.clock.now());
    other.take_within(&fixture.claim(&key, fixture.short())?, left).await?;
    Ok(())
}

async fn renewal_prolongs(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    let next = fixture.claim(&key, fixture.short())?;
    let mut validity = hold.validity;
    // Past the first ttl, in steps that are each shorter than the current lease.
    for _ in 0..5 {
        tokio::time::sleep(fixture.short() / 3).await;
        let renewed = one.renew(&hold, validity).await?;
        ensure!(renewed.deadline() >= validity.deadline(), "a renewal moved the deadline back");
        validity = renewed;
        other.refused(&next, Queue::Leave, validity).await?;
    }
    tokio::time::sleep(fixture.short() / 3).await;
    one.in_time(validity)?;
    other.refused(&next, Queue::Leave, validity).await?;
    one.give_back(&hold).await
}

async fn renewal_after_end(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    tokio::time::sleep(fixture.surely_over(hold.validity).since(fixture.clock.now())).await;
    one.lost(&hold).await?;
    other.take(&fixture.claim(&key, fixture.long())?).await?;
    Ok(())
}

async fn renewal_after_eviction(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.evict(&key).await?;
    one.lost(&hold).await?;
    other.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    Ok(())
}

async fn renewal_for_another(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let former = one.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.evict(&key).await?;
    let holder = other.take_within(&fixture.claim(&key, fixture.short())?, SLACK).await?;
    // Other cases look at the answer.
    let _ = one.renewal(&former).await?;
    other.in_time(holder.validity)?;
    one.take_within(&fixture.claim(&key, fixture.short())?, fixture.takeover(holder.validity.granted)).await?;
    Ok(())
}

async fn evicted(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let next = fixture.claim(&key, fixture.long())?;
    // Refused first, because a client must not remember what it saw then.
    other.refused(&next, Queue::Leave, hold.validity).await?;
    fixture.evict(&key).await?;
    other.take_within(&next, SLACK).await?;
    Ok(())
}

async fn as_asked(fixture: &Fixture<'_>) -> Tested {
    let (range, client) = (fixture.profile.ttl, fixture.client().await?);
    let between = fixture.short() + range.step.max(Duration::from_millis(1));
    ensure!(range.min <= range.max, "the shortest ttl is above the longest one");
    for ttl in [range.min, between.min(range.max), fixture.long(), range.max] {
        let claim = fixture.claim(&fixture.key()?, ttl)?;
        let hold = client.take(&claim).await?;
        let granted = hold.validity.granted;
        ensure!(granted == ttl, "a ttl of {ttl:?} was asked for and {granted:?} was granted");
        let same = hold.claim.owner == claim.owner && hold.claim.key == claim.key;
        ensure!(same, "the hold belongs to another claim than the one that asked");
        client.give_back(&hold).await?;
    }
    Ok(())
}

async fn any_ttl(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    for ttl in [fixture.some_seconds(), fixture.long(), fixture.profile.ttl.max] {
        let hold = client.take(&fixture.claim(&fixture.key()?, ttl)?).await?;
        client.kept_as_believed(&hold).await?;
        client.give_back(&hold).await?;
    }
    Ok(())
}

async fn grant_counts(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    for _ in 0..TRIES {
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        let before = fixture.clock.now();
        let (answer, replied) = slowly(&fixture.clock, client.backend.try_acquire(&claim, Queue::Leave)).await;
        let Attempt::Acquired(hold) = answer? else {
            return Err(Stop::Failed("a free lock was refused".into()));
        };
        let from = hold.validity.from;
        client.give_back(&hold).await?;
        ensure!(from >= before, "the grant counts from before it was asked for");
        if replied.is_none_or(|replied| from < replied) {
            return Ok(());
        }
    }
    Err(Stop::Failed(
        "the grant counts from the reply, so after a slow reply the holder trusts the lock for too long".into(),
    ))
}

async fn renewal_counts(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    let hold = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    for _ in 0..TRIES {
        let before = fixture.clock.now();
        let (answer, replied) = slowly(&fixture.clock, client.renew(&hold, hold.validity)).await;
        let from = answer?.from;
        ensure!(from >= before, "the renewal counts from before it was asked for");
        if replied.is_none_or(|replied| from < replied) {
            client.give_back(&hold).await?;
            return Ok(());
        }
    }
    Err(Stop::Failed(
        "the renewal counts from the reply, so after a slow reply the holder trusts the lock for too long".into(),
    ))
}

async fn lease_left(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    let wake = other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
    if let Some(left) = wake.lease_left {
        let most = fixture.profile.takeover(hold.validity.granted);
        ensure!(left <= most, "a lease of {:?} was reported with {left:?} left", hold.validity.granted);
    }
    one.give_back(&hold).await
}
