//! Requests that another request overtakes. A store that compares the owner in one step and acts in the next one does
//! to a later hold what was meant for an earlier one.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BreakRecord, Claim, Error, Hold, HoldId, Queue, Reservation, RunEnd};
use futures::future::{try_join, try_join_all};
use tokio::sync::Notify;

use crate::carried::known_as_waiter;
use crate::case::{Case, case};
use crate::cleanup::abandons;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::inspect::inspect;
use crate::tested::{SLACK, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a release that another one overtakes ends no later hold", always, release),
    case!("a renewal that a release overtakes changes no later hold", always, renewal),
    case!("a break that a release overtakes ends no later hold", always, breaking),
    case!("an abandon that another one overtakes ends no later hold", always, abandon),
    case!("an end with a kept key that a release overtakes ends no later hold", keeps, keep),
    case!("an end of a run that a release overtakes ends no later hold", periods, end_run),
    case!("a reservation of tokens that a release overtakes changes no later hold", cohorts, reservation),
    case!("a release that asks for the next caller and is overtaken ends no later hold", carries, exchange),
];

/// The request that is overtaken.
#[derive(Clone, Copy)]
enum Slow {
    Release,
    Renewal,
    Break,
    Abandon,
    Keep,
    EndRun,
    Reservation,
    Exchange,
}

async fn release(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Release).await
}

async fn renewal(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Renewal).await
}

async fn breaking(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Break).await
}

async fn abandon(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Abandon).await
}

async fn keep(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Keep).await
}

async fn end_run(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::EndRun).await
}

async fn reservation(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Reservation).await
}

async fn exchange(fixture: &Fixture<'_>) -> Tested {
    overtaken(fixture, Slow::Exchange).await
}

async fn overtaken(fixture: &Fixture<'_>, slow: Slow) -> Tested {
    // On one key, the requests may meet in a harmless order. On many keys at once, a store for which each hold is a session is late.
    const ROUNDS: usize = 4;
    const KEYS: usize = 4;
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    for _ in 0..ROUNDS {
        let later_holds = try_join_all((0..KEYS).map(|_| on_one_key(fixture, &one, &other, slow))).await?;
        for later in &later_holds {
            other.lasts_if_told(later, later.validity).await?;
            other.renew(later, later.validity).await?;
        }
        for later in &later_holds {
            other.give_back(later).await?;
        }
    }
    Ok(())
}

/// Makes the request and the one that overtakes it, and takes the lock in between.
async fn on_one_key(fixture: &Fixture<'_>, one: &Client, other: &Client, slow: Slow) -> Tested<Hold> {
    let key = fixture.key()?;
    // Its renewal would cut the lease of the later hold, which is longer.
    let hold = match slow {
        // The store asks for the next caller only of a client that it knows as a waiter.
        Slow::Exchange => known_as_waiter(fixture, &key, one, other).await?,
        _ => one.take(&fixture.claim(&key, fixture.short())?).await?,
    };
    let claim = fixture.claim(&key, fixture.some_seconds())?;
    let answered = Notify::new();
    let overtaking = async {
        // As long as a store may take between two steps.
        pause(fastrand::u64(0..10)).await;
        end(one, &hold, slow).await.inspect(|()| answered.notify_one())
    };
    let asking = async { ask(fixture, one, other, &hold, slow).await.inspect(|()| answered.notify_one()) };
    let taking = async {
        // Before the first answer the lock is taken, and to ask for it is load and nothing else.
        answered.notified().await;
        at_once(fixture, other, &claim).await
    };
    let (_, later) = try_join(try_join(asking, overtaking), taking).await?;
    Ok(later)
}

/// Other cases look at the answers.
async fn ask(fixture: &Fixture<'_>, one: &Client, other: &Client, hold: &Hold, slow: Slow) -> Tested {
    match slow {
        Slow::Release | Slow::Abandon => end(one, hold, slow).await,
        Slow::Renewal => one.renewal(hold).await.map(drop),
        Slow::Break => {
            let record = BreakRecord::new("the-suite", 17, "to be overtaken");
            let id = HoldId::of(&hold.claim.owner);
            retryable(inspect(&other.backend)?.break_hold(&hold.claim.key, id, &record).await)
        }
        // A moment: if the key is kept, the later hold begins after it.
        Slow::Keep => retryable(one.keeps()?.keep(hold, Duration::from_millis(10), None).await),
        Slow::EndRun => retryable(one.periods()?.end_run(hold, RunEnd::Failed).await),
        Slow::Reservation => {
            let asked = Reservation::new(1).even_if_awaited(true);
            retryable(one.tokens()?.reserve(hold, asked).await)
        }
        Slow::Exchange => {
            let next = fixture.claim(&hold.claim.key, fixture.long())?;
            let until = fixture.clock.now().after(fixture.long());
            let answer = one.exchange()?.release_to(hold, &next, until).await;
            if let Ok((_, Some(Attempt::Acquired(next)))) = &answer {
                return one.give_back(next).await;
            }
            let _ = abandons(one, &[next]).await;
            retryable(answer)
        }
    }
}

/// Fails for an error that a retry cannot mend. Other cases look at the answers.
fn retryable<T>(answer: Result<T, Error>) -> Tested {
    match answer {
        Err(error) if !error.is_retryable() => Err(error.into()),
        _ => Ok(()),
    }
}

async fn end(client: &Client, hold: &Hold, slow: Slow) -> Tested {
    match slow {
        Slow::Abandon => {
            let _ = abandons(client, std::slice::from_ref(&hold.claim)).await;
            Ok(())
        }
        _ => client.give_back(hold).await,
    }
}

/// Takes a lock as soon as it is free.
async fn at_once(fixture: &Fixture<'_>, client: &Client, claim: &Arc<Claim>) -> Tested<Hold> {
    let end = fixture.clock.now().after(SLACK);
    loop {
        let asked = fixture.clock.now();
        if let Attempt::Acquired(hold) = client.ask(claim, Queue::Leave).await? {
            return Ok(hold);
        }
        ensure!(asked < end, "a lock that must be free was refused for {SLACK:?}");
        // Without it, the asking itself slows a store down for which each attempt is a session.
        pause(1).await;
    }
}
