//! Waiting: which waiter is woken, when, and in which order.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Queue, Wake};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("waiters are served in the order in which they came", fair, in_order),
    case!("a release wakes a waiter", wakes, woken_by_release),
    case!("a waiter behind a dead holder hears when the lease has ended", wakes, woken_by_end),
    case!("a client that asks again and again leaves the lock to one that waits", takes_turns, left_to_others),
    case!("a dead waiter does not block the queue", always, dead_waiter),
];

async fn in_order(fixture: &Fixture<'_>) -> Tested {
    const WAITERS: usize = 5;
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    let until = fixture.clock.now().after(fixture.long());
    let began = fixture.clock.now();
    for number in 0..WAITERS {
        let (client, claim) = (fixture.client().await?, fixture.claim(&key, fixture.long())?);
        // The waiters take their places in the queue here, one after another.
        let wake = client.stand(&claim, until, hold.validity).await?;
        tasks.spawn(serve(client, claim, wake, number, served.clone()));
    }
    one.give_back(&hold).await?;
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Stop::Failed(format!("a waiter failed: {error}")))??;
    }
    let served = served.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The place of a waiter that was silent for some seconds may have ended.
    if !served.is_sorted() && fixture.clock.now() >= began.after(SLACK) {
        return Err(Stop::Late);
    }
    ensure!(served.is_sorted(), "waiters that came as 0 to {} were served as {served:?}", WAITERS - 1);
    Ok(())
}

async fn serve(client: Client, claim: Arc<Claim>, wake: Wake, number: usize, served: Arc<Mutex<Vec<usize>>>) -> Tested {
    let hold = client.wait_on(&claim, Some(wake), Duration::from_secs(40)).await?;
    served.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    client.give_back(&hold).await
}

async fn woken_by_release(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let mut wake = other.stand(&waiter, until, hold.validity).await?;
    pause(50).await;
    one.give_back(&hold).await?;
    let unheard =
        fixture.if_unheard(&hold, Stop::Failed(format!("a waiter did not hear of a release within {SLACK:?}")));
    // Only the notification counts: a waiter that asks again by itself would get the lock anyway.
    let signal = wake.signal.take().ok_or_else(|| Stop::Failed("a waiter got no signal".into()))?;
    tokio::time::timeout(SLACK, signal).await.map_err(|_| unheard)??;
    other.backend.abandon(&waiter).await?;
    Ok(())
}

async fn woken_by_end(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let wake = other.refused(&waiter, Queue::until(until), hold.validity).await?;
    let latest = hold.validity.from.after(fixture.takeover(hold.validity.granted));
    if wake.ask_by.is_none_or(|by| by > latest) {
        // The channel for notifications may have opened too late.
        let signal = wake.signal.ok_or(Stop::Late)?;
        let left = latest.since(fixture.clock.now());
        let news = tokio::time::timeout(left, signal).await;
        let news = news.map_err(|_| Stop::Failed("a waiter did not hear when a dead holder's lease ended".into()))?;
        news?;
    }
    other.backend.abandon(&waiter).await?;
    Ok(())
}

/// The first client acts as a process whose callers pass the turn on: each caller asks as soon as the caller before it
/// has released the lock.
async fn left_to_others(fixture: &Fixture<'_>) -> Tested {
    // A fair store has one order for all clients.
    let most = fixture.profile.holds_in_a_row.unwrap_or(1);
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let bound = fixture.long();
    let mut longer = Vec::new();
    for round in 0..5 {
        let (holds, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let passing = async {
            while !is_over.load(Ordering::Relaxed) {
                let hold = one.wait(&fixture.claim(&key, bound)?, bound).await?;
                holds.fetch_add(1, Ordering::Relaxed);
                pause(2).await;
                one.give_back(&hold).await?;
            }
            Ok(())
        };
        let waiting = async {
            let claim = fixture.claim(&key, bound)?;
            let end = fixture.clock.now().after(bound);
            while holds.load(Ordering::Relaxed) < 3 {
                pause(1).await;
            }
            let refused = loop {
                match other.ask(&claim, Queue::until(end)).await? {
                    Attempt::Contended(wake) => break wake,
                    // Between two holds.
                    Attempt::Acquired(hold) => other.give_back(&hold).await?,
                    Attempt::AlreadyRun => return Err(Stop::Late),
                }
            };
            let before = holds.load(Ordering::Relaxed);
            let hold = other.wait_on(&claim, Some(refused), bound).await?;
            is_over.store(true, Ordering::Relaxed);
            let between = holds.load(Ordering::Relaxed) - before;
            other.give_back(&hold).await?;
            Ok(between)
        };
        let ((), between) = futures::future::try_join(passing, waiting).await?;
        // For its first wait a client may open a connection. Nobody knows of the waiter before. Later there are the hold that it was
        // refused by, and one that was on its way then.
        if round > 0 && between > most + 2 {
            longer.push(between);
        }
    }
    // A store leaves the lock for a moment only, and on a busy machine a waiter may miss it in one round. It does not miss many.
    ensure!(
        longer.len() < 2 && longer.iter().all(|between| *between <= 40 * most.max(8)),
        "in rounds of four, a client had {longer:?} holds in a row while another one waited, and {most} are allowed"
    );
    Ok(())
}

async fn dead_waiter(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let dead = fixture.client().await?;
    let until: BootInstant = fixture.clock.now().after(Duration::from_secs(1));
    let wake = dead.refused(&fixture.claim(&key, fixture.short())?, Queue::until(until), hold.validity).await?;
    // As after the death of its process: no abandon, the connections just end.
    drop((wake, dead));
    one.give_back(&hold).await?;
    let bound = fixture.takeover(fixture.short().max(Duration::from_secs(1)));
    let next = other.wait(&fixture.claim(&key, fixture.long())?, bound).await?;
    other.give_back(&next).await
}
