//! Several locks in one step, all or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dlock_contract::{Claim, Hold, LockKey, Queue};

use crate::case::{Case, case};
use crate::cleanup::{abandons, on_our_thread, polled, settled};
use crate::client::Client;
use crate::fencing::risen;
use crate::fixture::{Fixture, slowly};
use crate::tested::{Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("free locks that are asked for together are all granted", together, all),
    case!("locks that are taken together are each kept as long as their holder believes", together, kept),
    case!("if one of several locks is taken, the others stay free", together, none),
    case!("an owner that asks again for several locks together has them once", together, again),
    case!("an attempt for several locks dropped anywhere is undone by their abandons", together, dropped),
    case!("an abandon on dlock's own thread does not overtake a request for several locks", together, overtaken),
    case!("a holder of several locks together is the only holder of each", together, alone),
    case!("a request for several locks together overtakes no waiter", together_in_line, in_line),
];

const KEYS: usize = 3;

fn keys(fixture: &Fixture<'_>) -> Tested<Vec<LockKey>> {
    (0..KEYS).map(|_| fixture.key()).collect()
}

fn claims(fixture: &Fixture<'_>, keys: &[LockKey], ttl: Duration) -> Tested<Vec<Arc<Claim>>> {
    keys.iter().map(|key| fixture.claim(key, ttl)).collect()
}

/// Takes several free locks together. Fails if they are refused.
async fn take(client: &Client, claims: &[Arc<Claim>]) -> Tested<Vec<Hold>> {
    let holds = client.ask_all(claims).await?;
    holds.ok_or_else(|| Stop::Failed("a request for several free locks together was refused".into()))
}

async fn all(fixture: &Fixture<'_>) -> Tested {
    let (keys, one, other) = (keys(fixture)?, fixture.client().await?, fixture.client().await?);
    let mut seen = Vec::with_capacity(keys.len());
    for key in &keys {
        let hold = other.take(&fixture.claim(key, fixture.long())?).await?;
        seen.push(fixture.token(&hold)?);
        other.give_back(&hold).await?;
    }
    let wanted = claims(fixture, &keys, fixture.long())?;
    let (holds, began) = slowly(&fixture.clock, take(&one, &wanted)).await;
    for ((hold, before), claim) in holds?.iter().zip(seen).zip(&wanted) {
        risen(fixture, before, hold, "a release")?;
        let from = hold.validity.from;
        ensure!(began.is_none_or(|began| from <= began), "a hold counts from its reply");
        ensure!(hold.validity.granted >= claim.ttl, "{:?} was granted for {:?}", hold.validity.granted, claim.ttl);
        other.refused(&fixture.claim(&claim.key, fixture.long())?, Queue::Leave, hold.validity).await?;
        one.renew(hold, hold.validity).await?;
        one.give_back(hold).await?;
    }
    clean(fixture, &keys, "after the release of several locks").await
}

async fn clean(fixture: &Fixture<'_>, keys: &[LockKey], after: &str) -> Tested {
    for key in keys {
        fixture.clean(key, after).await?;
    }
    Ok(())
}

async fn kept(fixture: &Fixture<'_>) -> Tested {
    let (keys, one) = (keys(fixture)?, fixture.client().await?);
    for hold in &take(&one, &claims(fixture, &keys, fixture.long())?).await? {
        one.kept_as_believed(hold).await?;
        one.give_back(hold).await?;
    }
    Ok(())
}

async fn none(fixture: &Fixture<'_>) -> Tested {
    let (keys, one, other) = (keys(fixture)?, fixture.client().await?, fixture.client().await?);
    for taken in &keys {
        let hold = other.take(&fixture.claim(taken, fixture.long())?).await?;
        let mut before = Vec::new();
        for key in &keys {
            before.push(fixture.leftovers(key).await?.len());
        }
        let answer = one.ask_all(&claims(fixture, &keys, fixture.long())?).await?;
        other.renew(&hold, hold.validity).await?;
        ensure!(answer.is_none(), "several locks were granted together while one of them was held");
        for (key, before) in keys.iter().zip(before) {
            let found = fixture.leftovers(key).await?;
            ensure!(found.len() == before, "several locks were refused, and the store has {}", found.join(", "));
        }
        other.give_back(&hold).await?;
    }
    clean(fixture, &keys, "after several locks were refused").await
}

async fn again(fixture: &Fixture<'_>) -> Tested {
    let (keys, one, other) = (keys(fixture)?, fixture.client().await?, fixture.client().await?);
    let wanted = claims(fixture, &keys, fixture.short())?;
    let first = take(&one, &wanted).await?;
    let mut validity = first.iter().map(|hold| hold.validity).collect::<Vec<_>>();
    let mut holds = first;
    for _ in 0..4 {
        tokio::time::sleep(fixture.short() / 3).await;
        validity.iter().try_for_each(|validity| one.in_time(*validity))?;
        let more = take(&one, &wanted).await?;
        for (before, after) in holds.iter().zip(&more) {
            let (before, after) = (fixture.token(before)?, fixture.token(after)?);
            ensure!(before <= after, "a repeated request for several locks lowered a token from {before} to {after}");
        }
        validity = more.iter().map(|hold| hold.validity).collect();
        holds = more;
        for hold in &holds {
            other.refused(&fixture.claim(&hold.claim.key, fixture.long())?, Queue::Leave, hold.validity).await?;
        }
    }
    for hold in &holds {
        one.end(hold, None, None).await?;
    }
    clean(fixture, &keys, "after one release of each lock").await
}

/// Ends each attempt after a random number of polls, like a cancelled caller.
async fn dropped(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    let warm = take(&client, &claims(fixture, &keys(fixture)?, fixture.long())?).await?;
    for hold in &warm {
        client.give_back(hold).await?;
    }
    let mut given_up = Vec::new();
    for round in 0..16 {
        let wanted = claims(fixture, &keys(fixture)?, fixture.long())?;
        // The attempt may have ended before it could be dropped. Its unused grants are abandoned too.
        let _ = polled(client.batch()?.try_acquire_all(&wanted), round % 6).await;
        for claim in &wanted {
            client.backend.abandon(claim).await?;
        }
        given_up.extend(wanted);
    }
    // A lost request may still have its effect, within a moment.
    pause(300).await;
    settled(fixture, &given_up, 0).await
}

/// A request is begun on this thread and dropped, and dlock's own thread abandons its claims, as the engine does.
async fn overtaken(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    // The first request of a client opens connections, and is slow.
    for hold in take(&client, &claims(fixture, &keys(fixture)?, fixture.long())?).await? {
        client.give_back(&hold).await?;
    }
    let mut given_up = Vec::new();
    // Which task comes first is also a matter of what ran before.
    for _ in 0..8 {
        let wanted = claims(fixture, &keys(fixture)?, fixture.long())?;
        let batch = client.batch()?;
        let attempt = async { drop(polled(batch.try_acquire_all(&wanted), 1).await) };
        on_our_thread(attempt, abandons(&client, &wanted)).await?;
        given_up.extend(wanted);
    }
    // A request that was overtaken may still have its effect, within a moment.
    pause(300).await;
    settled(fixture, &given_up, 0).await
}

async fn alone(fixture: &Fixture<'_>) -> Tested {
    const ROUNDS: usize = 4;
    let keys = keys(fixture)?;
    let inside: Arc<[AtomicU32]> = keys.iter().map(|_| AtomicU32::new(0)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let (client, inside) = (fixture.client().await?, inside.clone());
        // Each task leaves out another lock, so all tasks meet and no two neighbours want the same locks.
        let mine: Vec<usize> = (0..keys.len()).filter(|key| *key != worker % keys.len()).collect();
        let named: Vec<LockKey> = mine.iter().filter_map(|key| keys.get(*key).cloned()).collect();
        let rounds = (0..ROUNDS).map(|_| claims(fixture, &named, fixture.long())).collect::<Tested<Vec<_>>>()?;
        tasks.spawn(work(client, rounds, mine, inside));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Stop::Failed(format!("a worker failed: {error}")))??;
    }
    Ok(())
}

async fn work(client: Client, rounds: Vec<Vec<Arc<Claim>>>, mine: Vec<usize>, inside: Arc<[AtomicU32]>) -> Tested {
    for claims in rounds {
        let holds = loop {
            if let Some(holds) = client.ask_all(&claims).await? {
                break holds;
            }
            pause(fastrand::u64(1..8)).await;
        };
        let mine = || mine.iter().filter_map(|key| inside.get(*key));
        let met = mine().filter(|key| key.fetch_add(1, Ordering::SeqCst) > 0).count();
        ensure!(met == 0, "two owners held {met} of several locks together");
        pause(2).await;
        for key in mine() {
            key.fetch_sub(1, Ordering::SeqCst);
        }
        for hold in &holds {
            client.give_back(hold).await?;
        }
    }
    Ok(())
}

async fn in_line(fixture: &Fixture<'_>) -> Tested {
    let (keys, one, other) = (keys(fixture)?, fixture.client().await?, fixture.client().await?);
    let Some(awaited) = keys.last() else { return Ok(()) };
    let (holder, waiter) = (fixture.claim(awaited, fixture.long())?, fixture.claim(awaited, fixture.long())?);
    let hold = other.take(&holder).await?;
    let until = Queue::until(fixture.clock.now().after(Duration::from_secs(60)));
    let wake = other.refused(&waiter, until, hold.validity).await?;
    if wake.signal.is_none() {
        // The channel for notifications opened too late, so it is in no queue.
        return Err(Stop::Late);
    }
    other.give_back(&hold).await?;
    // The lock is free, or was handed over to the waiter, which has not heard of it yet.
    let answer = one.ask_all(&claims(fixture, &keys, fixture.long())?).await?;
    ensure!(answer.is_none(), "several locks were granted together although a waiter was in the queue of one of them");
    let next = other.wait_on(&waiter, Some(wake), fixture.long()).await?;
    other.give_back(&next).await
}
