//! Tokens: each grant has a higher token than all earlier grants, whatever ended the hold before.

use dlock_contract::{Hold, LockKey, Queue};

use crate::bench::{Bench, SLACK, Tested, case, ensure};
use crate::case::Case;
use crate::modes::all_modes;

pub(crate) const CASES: &[Case] = &[
    case!("the token rises over a release", fences, over_release),
    case!("the token rises over an expiry", fences, over_expiry),
    case!("the token rises although an operator took the lock", fences, over_eviction),
    case!("the token rises from client to client and back", fences, over_clients),
    case!("the token rises over an abandoned grant", fences, over_abandon),
    case!("the token rises from mode to mode", modes_with_fences, over_modes),
    case!("a repeated request of an owner never lowers its token", fences, repeated),
    case!("the token rises over a restart of the store", fences, over_restart, disturbs),
    case!("a hold survives a restart of the store", durable, hold_over_restart, disturbs),
];

async fn over_release(bench: &Bench<'_>) -> Tested {
    let (key, one) = (bench.key()?, bench.client().await?);
    let mut seen = 0;
    for _ in 0..4 {
        let hold = one.take(&bench.claim(&key, bench.long())?).await?;
        seen = risen(bench, seen, &hold, "a release")?;
        one.give_back(&hold).await?;
    }
    Ok(())
}

async fn over_expiry(bench: &Bench<'_>) -> Tested {
    let key = bench.key()?;
    let (seen, one) = (raised(bench, &key).await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.short())?).await?;
    let seen = risen(bench, seen, &hold, "a release")?;
    let next = bench.claim(&key, bench.long())?;
    let next = one.take_within(&next, bench.takeover(bench.short())).await?;
    risen(bench, seen, &next, "an expiry")?;
    Ok(())
}

async fn over_eviction(bench: &Bench<'_>) -> Tested {
    let key = bench.key()?;
    let (seen, one) = (raised(bench, &key).await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    let seen = risen(bench, seen, &hold, "a release")?;
    bench.evict(&key).await?;
    let next = one.take_within(&bench.claim(&key, bench.long())?, SLACK).await?;
    risen(bench, seen, &next, "an operator took the lock")?;
    Ok(())
}

async fn over_clients(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let mut seen = 0;
    for client in [&one, &other, &one, &other] {
        let hold = client.take(&bench.claim(&key, bench.long())?).await?;
        seen = risen(bench, seen, &hold, "another client's hold")?;
        client.give_back(&hold).await?;
    }
    Ok(())
}

async fn over_abandon(bench: &Bench<'_>) -> Tested {
    let key = bench.key()?;
    let (seen, one) = (raised(bench, &key).await?, bench.client().await?);
    let claim = bench.claim(&key, bench.long())?;
    let seen = risen(bench, seen, &one.take(&claim).await?, "a release")?;
    one.backend.abandon(&claim).await?;
    let next = one.take_within(&bench.claim(&key, bench.long())?, SLACK).await?;
    risen(bench, seen, &next, "an abandon")?;
    Ok(())
}

async fn over_modes(bench: &Bench<'_>) -> Tested {
    let (key, one) = (bench.key()?, bench.client().await?);
    let mut seen = 0;
    // Two rounds, so that the first mode also follows the last.
    for mode in [all_modes(bench), all_modes(bench)].concat() {
        // Two holds at once, if the mode allows it.
        let mut holds = Vec::new();
        for _ in 0..1 + usize::from(mode.is_shared()) {
            let hold = one.take(&bench.claim_as(mode, &key, bench.long())?).await?;
            seen = risen(bench, seen, &hold, "a hold of another mode")?;
            holds.push(hold);
        }
        for hold in &holds {
            one.give_back(hold).await?;
        }
    }
    Ok(())
}

async fn repeated(bench: &Bench<'_>) -> Tested {
    let key = bench.key()?;
    raised(bench, &key).await?;
    let one = bench.client().await?;
    let claim = bench.claim(&key, bench.long())?;
    let hold = one.take(&claim).await?;
    let again = one.take(&claim).await?;
    let (first, second) = (bench.token(&hold)?, bench.token(&again)?);
    // The token may rise: if the store counts with a separate command, a lost reply has used up a number.
    ensure!(first <= second, "a repeated request lowered the token from {first} to {second}");
    one.give_back(&again).await?;
    Ok(())
}

async fn over_restart(bench: &Bench<'_>) -> Tested {
    let key = bench.key()?;
    let seen = raised(bench, &key).await?;
    bench.restart().await?;
    let one = bench.client().await?;
    let hold = one.take_within(&bench.claim(&key, bench.long())?, SLACK).await?;
    risen(bench, seen, &hold, "a restart")?;
    one.give_back(&hold).await?;
    Ok(())
}

async fn hold_over_restart(bench: &Bench<'_>) -> Tested {
    let (key, one) = (bench.key()?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    bench.restart().await?;
    let other = bench.client().await?;
    other.refused(&bench.claim(&key, bench.long())?, Queue::Leave, hold.validity).await?;
    // With the client from before the restart: it must find its store again.
    let end = bench.clock.now().after(SLACK);
    while let Err(error) = one.renewal(&hold).await? {
        ensure!(bench.clock.now() < end, "a hold was not renewed after a restart: {error}");
        super::bench::pause(50).await;
    }
    one.renew(&hold, hold.validity).await?;
    one.give_back(&hold).await?;
    Ok(())
}

/// Makes a few grants, so that a counter that begins again is noticed.
async fn raised(bench: &Bench<'_>, key: &LockKey) -> Tested<u64> {
    let (one, mut seen) = (bench.client().await?, 0);
    for _ in 0..3 {
        let hold = one.take(&bench.claim(key, bench.long())?).await?;
        seen = bench.token(&hold)?;
        one.give_back(&hold).await?;
    }
    Ok(seen)
}

pub(crate) fn risen(bench: &Bench<'_>, before: u64, hold: &Hold, over: &str) -> Tested<u64> {
    let token = bench.token(hold)?;
    ensure!(token > before, "over {over}, the token went from {before} to {token}");
    Ok(token)
}
