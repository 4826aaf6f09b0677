//! Nothing is left behind: by a release, an attempt, a wait, or a future that was dropped half way.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Claim, Queue, Standing};
use dlock_store::background;
use futures::future::try_join_all;

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Fixture, MOMENT, TRIES};
use crate::store::Outage;
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a release leaves nothing in the store", always, after_release),
    case!("a contended attempt that does not join the queue leaves nothing", always, after_contended),
    case!("an abandoned wait leaves nothing and leaves the holder alone", always, abandoned_wait),
    case!("an abandoned grant is free", always, abandoned_grant),
    case!("an abandon may come twice, and without need", always, abandoned_again),
    case!("an attempt dropped anywhere is undone by an abandon", always, dropped_attempts),
    case!("an abandon on dlock's own thread does not overtake its attempt", always, overtaken_attempts),
    case!("an attempt that arrives late leaves nothing once it was abandoned", always, late_attempts, disturbs),
    case!("a renewal dropped anywhere leaves the client usable", always, dropped_renewals),
];

async fn after_release(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    fixture.clean(&key, "before the first grant").await?;
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    // Otherwise the Store looks in the wrong place, and every case about leftovers would pass.
    ensure!(!fixture.leftovers(&key).await?.is_empty(), "the Store shows nothing while the lock is held");
    one.give_back(&hold).await?;
    fixture.clean(&key, "after the release").await
}

async fn after_contended(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let before = fixture.leftovers(&key).await?.len();
    for _ in 0..3 {
        drop(other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?);
    }
    let found = fixture.leftovers(&key).await?;
    ensure!(found.len() == before, "three refused attempts left something in the store: {}", found.join(", "));
    one.give_back(&hold).await
}

async fn abandoned_wait(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let before = fixture.leftovers(&key).await?.len();
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = Queue::until(fixture.clock.now().after(fixture.long()));
    drop(other.refused(&waiter, until, hold.validity).await?);
    other.backend.abandon(&waiter).await?;
    settled(fixture, &[waiter], before).await?;
    let third = fixture.claim(&key, fixture.long())?;
    other.refused(&third, Queue::Leave, hold.validity).await?;
    one.renew(&hold, hold.validity).await?;
    one.give_back(&hold).await
}

async fn abandoned_grant(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.long())?;
    let _unused = one.take(&claim).await?;
    one.backend.abandon(&claim).await?;
    settled(fixture, &[claim], 0).await?;
    other.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    Ok(())
}

async fn abandoned_again(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.long())?;
    one.backend.abandon(&claim).await?;
    let hold = one.take(&claim).await?;
    one.give_back(&hold).await?;
    one.backend.abandon(&claim).await?;
    one.backend.abandon(&claim).await?;
    Ok(())
}

/// Ends each attempt after a random number of polls or at a random time, like a cancelled caller.
async fn dropped_attempts(fixture: &Fixture<'_>) -> Tested {
    const ROUNDS: usize = 24;
    let (client, mut random, seed) = (fixture.client().await?, fastrand::Rng::new(), fastrand::u64(..));
    random.seed(seed);
    let began = fixture.clock.now();
    let warm = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    let usual = fixture.clock.now().since(began) + Duration::from_millis(1);
    client.give_back(&warm).await?;
    let mut claims = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        let queue = if random.bool() { Queue::Leave } else { Queue::until(fixture.clock.now().after(fixture.long())) };
        let attempt = client.backend.try_acquire(&claim, queue);
        let answer = if round % 2 == 0 {
            polled(attempt, random.usize(0..6)).await
        } else {
            tokio::time::timeout(usual.mul_f64(random.f64()), attempt).await.ok()
        };
        match answer {
            // The attempt ended before it could be dropped. This is an ordinary hold.
            Some(Ok(Attempt::Acquired(hold))) => client.give_back(&hold).await?,
            _ => {
                on_our_thread(async {}, abandons(&client, std::slice::from_ref(&claim))).await?;
                claims.push(claim);
            }
        }
    }
    // A lost request may still have its effect, within a moment.
    pause(300).await;
    let result = async {
        settled(fixture, &claims, 0).await?;
        for claim in &claims {
            let next = fixture.claim(&claim.key, fixture.long())?;
            let next = client.take_within(&next, SLACK).await?;
            client.give_back(&next).await?;
        }
        Ok(())
    };
    result.await.map_err(|stop| match stop {
        Stop::Failed(text) => Stop::Failed(format!("{text} (seed {seed})")),
        other => other,
    })
}

/// An attempt is begun on this thread and dropped, and dlock's own thread abandons it, as the engine does. A store whose
/// requests are tasks of that thread must not run the abandon's task first.
async fn overtaken_attempts(fixture: &Fixture<'_>) -> Tested {
    let (holder, client) = (fixture.client().await?, fixture.client().await?);
    // The first request of a client opens connections, and is slow.
    client.give_back(&client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?).await?;
    let queues = [Queue::Leave, Queue::until(fixture.clock.now().after(fixture.long()))];
    for is_free in [true, false] {
        let key = fixture.key()?;
        let hold = if is_free { None } else { Some(holder.take(&fixture.claim(&key, fixture.long())?).await?) };
        let before = fixture.leftovers(&key).await?.len();
        let mut claims = Vec::new();
        // Which task comes first is also a matter of what ran before.
        for queue in queues.into_iter().cycle().take(8) {
            let claim = fixture.claim(&if is_free { fixture.key()? } else { key.clone() }, fixture.long())?;
            let attempt = async { drop(polled(client.backend.try_acquire(&claim, queue), 1).await) };
            on_our_thread(attempt, abandons(&client, std::slice::from_ref(&claim))).await?;
            claims.push(claim);
        }
        // A request that was overtaken may still have its effect, within a moment.
        pause(300).await;
        settled(fixture, &claims, before).await?;
        if let Some(hold) = hold {
            holder.renew(&hold, hold.validity).await?;
            holder.give_back(&hold).await?;
        }
        for claim in claims {
            let next = client.take_within(&fixture.claim(&claim.key, fixture.long())?, SLACK).await?;
            client.give_back(&next).await?;
        }
    }
    Ok(())
}

/// The network keeps the attempts until after their abandons, unless these take the same way.
async fn late_attempts(fixture: &Fixture<'_>) -> Tested {
    let (client, other) = (fixture.client().await?, fixture.client().await?);
    // Over connections that are open before the network is late.
    client.give_back(&client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?).await?;
    let queues = [Queue::Leave, Queue::until(fixture.clock.now().after(fixture.long()))];
    let late = fixture.outage(Outage::Late).await?;
    let client_of_all = &client;
    let given_up = queues.map(|queue| async move {
        let client = client_of_all;
        let claim = fixture.claim(&fixture.key()?, fixture.long())?;
        let _ = tokio::time::timeout(Duration::from_millis(300), client.backend.try_acquire(&claim, queue)).await;
        let abandon = tokio::time::timeout(Duration::from_secs(1), client.backend.abandon(&claim)).await;
        Ok::<_, Stop>((claim, matches!(abandon, Ok(Ok(())))))
    });
    let given_up = try_join_all(given_up).await?;
    drop(late);
    let end = fixture.clock.now().after(MOMENT);
    // As the engine does after an abandon without an answer. A further abandon would hide what the answered one left.
    for (claim, _) in given_up.iter().filter(|(_, is_abandoned)| !is_abandoned) {
        while let Err(error) = client.backend.abandon(claim).await {
            ensure!(fixture.clock.now() < end, "after an outage, an abandon failed: {error}");
            pause(50).await;
        }
    }
    // It arrives within a moment.
    pause(300).await;
    for (claim, _) in given_up {
        settled(fixture, std::slice::from_ref(&claim), 0).await?;
        let next = other.take_within(&fixture.claim(&claim.key, fixture.long())?, SLACK).await?;
        other.give_back(&next).await?;
    }
    Ok(())
}

/// Abandons the claims, one after another.
pub(crate) fn abandons(
    client: &Client,
    claims: &[Arc<Claim>],
) -> impl Future<Output = dlock_contract::Result<()>> + Send + 'static + use<> {
    let (backend, claims) = (client.backend.clone(), claims.to_vec());
    async move {
        for claim in &claims {
            let mut tries = 0;
            // As the engine does.
            while let Err(error) = backend.abandon(claim).await {
                tries += 1;
                if !error.is_retryable() || tries == TRIES {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Runs `abandon` on dlock's own thread, right after `attempt`. That thread does nothing else meanwhile, so what the
/// attempt spawns there is still in its queue when the abandon begins.
pub(crate) async fn on_our_thread(
    attempt: impl Future<Output = ()>,
    abandon: impl Future<Output = dlock_contract::Result<()>> + Send + 'static,
) -> Tested {
    let (stops, stopped) = tokio::sync::oneshot::channel();
    let (begun, has_begun) = std::sync::mpsc::channel::<()>();
    let abandon = background()?.run(async move {
        let _ = stops.send(());
        // Ends when the sender is dropped.
        let _ = has_begun.recv();
        abandon.await
    });
    let _ = stopped.await;
    attempt.await;
    drop(begun);
    Ok(abandon.await??)
}

async fn dropped_renewals(fixture: &Fixture<'_>) -> Tested {
    let (client, mut random, seed) = (fixture.client().await?, fastrand::Rng::new(), fastrand::u64(..));
    random.seed(seed);
    for _ in 0..12 {
        // The answer must be Lost: a reply that the wrong request reads would show here.
        let released = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
        client.give_back(&released).await?;
        let hold = client.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
        let _ = polled(client.backend.renew(&[&released]), random.usize(1..4)).await;
        let standing = client.renewal(&hold).await?;
        ensure!(
            matches!(standing, Ok(Standing::Renewed(_))),
            "after another renewal was dropped, the renewal of a held lock returned {standing:?} (seed {seed})"
        );
        let _ = polled(client.backend.renew(&[&hold]), random.usize(1..4)).await;
        client.give_back(&hold).await?;
        let next = client.take_within(&fixture.claim(&hold.claim.key, fixture.long())?, SLACK).await?;
        client.give_back(&next).await?;
    }
    Ok(())
}

/// Polls a future this many times, and drops it.
pub(crate) async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    for _ in 0..times {
        if let std::task::Poll::Ready(output) = futures::poll!(future.as_mut()) {
            return Some(output);
        }
        pause(1).await;
    }
    None
}

/// Within a moment, the store has no more than this many entries for each claim's key. A closed session may still be
/// visible for that moment.
pub(crate) async fn settled(fixture: &Fixture<'_>, claims: &[Arc<Claim>], most: usize) -> Tested {
    let end = fixture.clock.now().after(MOMENT);
    for claim in claims {
        loop {
            let found = fixture.leftovers(&claim.key).await?;
            if found.len() <= most {
                break;
            }
            ensure!(fixture.clock.now() < end, "after an abandon, the store still has {}", found.join(", "));
            pause(50).await;
        }
        ensure!(
            fixture.leftovers(&claim.key).await?.len() == most,
            "an abandon removed entries of another owner from the store"
        );
    }
    Ok(())
}
