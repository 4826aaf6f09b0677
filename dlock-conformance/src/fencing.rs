//! Tokens: each grant has a higher token than all earlier grants, whatever ended the hold before.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dlock_contract::{Hold, LockKey, Queue};
use futures::future::try_join_all;

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::modes::all_modes;
use crate::tested::{SLACK, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("the token rises over a release", fences, over_release),
    case!("the token rises over an expiry", fences, over_expiry),
    case!("the token rises although an operator took the lock", fences, over_eviction),
    case!("the token rises from client to client and back", fences, over_clients),
    case!("the token falls at no grant while many owners ask", fences, over_many),
    case!("the token rises over an abandoned grant", fences, over_abandon),
    case!("the token rises from mode to mode", modes_with_fences, over_modes),
    case!("a repeated request of an owner never lowers its token", fences, repeated),
    case!("the token rises over a restart of the store", fences, over_restart, disturbs),
    case!("a hold survives a restart of the store", durable, hold_over_restart, disturbs),
];

async fn over_release(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let mut seen = 0;
    for _ in 0..4 {
        let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
        seen = risen(fixture, seen, &hold, "a release")?;
        one.give_back(&hold).await?;
    }
    Ok(())
}

async fn over_expiry(fixture: &Fixture<'_>) -> Tested {
    let key = fixture.key()?;
    let (seen, one) = (raised(fixture, &key).await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    let seen = risen(fixture, seen, &hold, "a release")?;
    let next = fixture.claim(&key, fixture.long())?;
    let next = one.take_within(&next, fixture.takeover(fixture.short())).await?;
    risen(fixture, seen, &next, "an expiry")?;
    Ok(())
}

async fn over_eviction(fixture: &Fixture<'_>) -> Tested {
    let key = fixture.key()?;
    let (seen, one) = (raised(fixture, &key).await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let seen = risen(fixture, seen, &hold, "a release")?;
    fixture.evict(&key).await?;
    let next = one.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    risen(fixture, seen, &next, "an operator took the lock")?;
    Ok(())
}

async fn over_clients(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let mut seen = 0;
    for client in [&one, &other, &one, &other] {
        let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
        seen = risen(fixture, seen, &hold, "another client's hold")?;
        client.give_back(&hold).await?;
    }
    Ok(())
}

/// A token that is drawn before the lock is won may be lower than that of a hold that came and went meanwhile.
async fn over_many(fixture: &Fixture<'_>) -> Tested {
    const ROUNDS: usize = 4;
    let clients = [fixture.client().await?, fixture.client().await?, fixture.client().await?];
    let (key, inside, highest) = (&fixture.key()?, &AtomicU32::new(0), &AtomicU64::new(0));
    let workers = clients.iter().cycle().take(9).map(|client| async move {
        for _ in 0..ROUNDS {
            let hold = client.take_within(&fixture.claim(key, fixture.long())?, Duration::from_secs(60)).await?;
            // Two holders at once are the matter of another case.
            let is_alone = inside.fetch_add(1, Ordering::SeqCst) == 0;
            let token = fixture.token(&hold)?;
            let before = highest.fetch_max(token, Ordering::SeqCst);
            ensure!(!is_alone || token >= before, "the token fell from {before} to {token} while many owners asked");
            pause(1).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            client.give_back(&hold).await?;
        }
        Ok(())
    });
    try_join_all(workers).await.map(drop)
}

async fn over_abandon(fixture: &Fixture<'_>) -> Tested {
    let key = fixture.key()?;
    let (seen, one) = (raised(fixture, &key).await?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.long())?;
    let seen = risen(fixture, seen, &one.take(&claim).await?, "a release")?;
    one.backend.abandon(&claim).await?;
    let next = one.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    risen(fixture, seen, &next, "an abandon")?;
    Ok(())
}

async fn over_modes(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let mut seen = 0;
    // Two rounds, so that the first mode also follows the last.
    for mode in [all_modes(fixture), all_modes(fixture)].concat() {
        // Two holds at once, if the mode allows it.
        let mut holds = Vec::new();
        for _ in 0..1 + usize::from(mode.is_shared()) {
            let hold = one.take(&fixture.claim_as(mode, &key, fixture.long())?).await?;
            seen = risen(fixture, seen, &hold, "a hold of another mode")?;
            holds.push(hold);
        }
        for hold in &holds {
            one.give_back(hold).await?;
        }
    }
    Ok(())
}

async fn repeated(fixture: &Fixture<'_>) -> Tested {
    let key = fixture.key()?;
    raised(fixture, &key).await?;
    let one = fixture.client().await?;
    let claim = fixture.claim(&key, fixture.long())?;
    let hold = one.take(&claim).await?;
    let again = one.take(&claim).await?;
    let (first, second) = (fixture.token(&hold)?, fixture.token(&again)?);
    // The token may rise: if the store counts with a separate command, a lost reply has used up a number.
    ensure!(first <= second, "a repeated request lowered the token from {first} to {second}");
    one.give_back(&again).await
}

async fn over_restart(fixture: &Fixture<'_>) -> Tested {
    let key = fixture.key()?;
    let seen = raised(fixture, &key).await?;
    fixture.restart().await?;
    let one = fixture.client().await?;
    let hold = one.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    risen(fixture, seen, &hold, "a restart")?;
    one.give_back(&hold).await
}

async fn hold_over_restart(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.restart().await?;
    let other = fixture.client().await?;
    other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
    // With the client from before the restart: it must find its store again.
    let end = fixture.clock.now().after(SLACK);
    while let Err(error) = one.renewal(&hold).await? {
        ensure!(fixture.clock.now() < end, "a hold was not renewed after a restart: {error}");
        pause(50).await;
    }
    one.renew(&hold, hold.validity).await?;
    one.give_back(&hold).await
}

/// Makes a few grants, so that a counter that begins again is noticed.
async fn raised(fixture: &Fixture<'_>, key: &LockKey) -> Tested<u64> {
    let (one, mut seen) = (fixture.client().await?, 0);
    for _ in 0..3 {
        let hold = one.take(&fixture.claim(key, fixture.long())?).await?;
        seen = fixture.token(&hold)?;
        one.give_back(&hold).await?;
    }
    Ok(seen)
}

pub(crate) fn risen(fixture: &Fixture<'_>, before: u64, hold: &Hold, over: &str) -> Tested<u64> {
    let token = fixture.token(hold)?;
    ensure!(token > before, "over {over}, the token went from {before} to {token}");
    Ok(token)
}
