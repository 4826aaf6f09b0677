//! Stores whose locks live in sessions: if the session ends before the ttl, the lock ends too.

use std::time::Duration;

use dlock_contract::{Expiry, Hold, LockKey, Queue, Released, Standing};
use tokio::task::JoinHandle;

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Fixture, TRIES};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("the end of a session lets the next owner in", sessions, session_ends),
    case!("a holder hears of the end of its session within the stated time", sessions, hears_in_time),
    case!("the end of one session ends no other one's hold", sessions, neighbour_lives),
    case!("a release reports no success if the session had ended before", sessions, release_after_end),
];

async fn session_ends(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let next = fixture.claim(&key, fixture.long())?;
    other.refused(&next, Queue::Leave, hold.validity).await?;
    // As after the death of the process: nothing is released, the connections just end.
    drop((hold, one));
    other.take_within(&next, fixture.profile.takeover_delay + SLACK).await?;
    Ok(())
}

async fn hears_in_time(fixture: &Fixture<'_>) -> Tested {
    // The stated time and one round trip.
    let bound = window(fixture) + Duration::from_millis(200);
    let client = fixture.client().await?;
    let mut fastest = Duration::MAX;
    // A busy machine may be late by chance, but not every time.
    for age in [0, 50, 400].into_iter().cycle().take(2 * TRIES) {
        let key = fixture.key()?;
        let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
        let ended = listen(&hold)?;
        pause(age).await;
        end_session(fixture, &key).await?;
        // The fixture may log in to end it, and the bound holds no login.
        let before = fixture.clock.now();
        let learned = tokio::time::timeout(window(fixture) + SLACK, learns(&client, &hold, ended)).await;
        ensure!(learned.is_ok(), "a holder did not hear of the end of its session for {:?}", window(fixture) + SLACK);
        let after = fixture.clock.now().since(before);
        fastest = fastest.min(after);
        if after <= bound {
            return Ok(());
        }
    }
    Err(Stop::Failed(format!("a holder heard of the end of its session after {fastest:?} at best")))
}

async fn neighbour_lives(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    let (key, other) = (fixture.key()?, fixture.key()?);
    let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
    // Holds may share a session, but for those that are not renewed.
    let neighbour = client.take(&fixture.claim_not_renewed(&other, fixture.long())?).await?;
    let ended = listen(&neighbour)?;
    fixture.evict(&other).await?;
    // When the neighbour hears of its end, the sessions have been checked.
    let _ = tokio::time::timeout(window(fixture) + SLACK, learns(&client, &neighbour, ended)).await;
    // Its own session may be hinted at, and the renewal decides.
    client.renew(&hold, hold.validity).await?;
    tokio::time::sleep(window(fixture) * 2).await;
    client.renew(&hold, hold.validity).await?;
    client.give_back(&hold).await
}

async fn release_after_end(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    for age in [0, 400] {
        let key = fixture.key()?;
        let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
        pause(age).await;
        end_session(fixture, &key).await?;
        let released = client.backend.release(&hold).await;
        let reported = matches!(released, Ok(Released::Released));
        ensure!(!reported, "a release reported success, but the session of the lock had ended before");
    }
    Ok(())
}

/// Ends the session as an operator would, and waits until the store has freed the lock.
async fn end_session(fixture: &Fixture<'_>, key: &LockKey) -> Tested {
    fixture.evict(key).await?;
    let end = fixture.clock.now().after(SLACK);
    loop {
        let asked = fixture.clock.now();
        if fixture.leftovers(key).await?.is_empty() {
            return Ok(());
        }
        ensure!(asked < end, "the store keeps a lock whose session was ended");
        pause(5).await;
    }
}

/// Listens from now on for the end of the session.
fn listen(hold: &Hold) -> Tested<JoinHandle<()>> {
    match hold.session.as_ref().and_then(|session| session.ended()) {
        Some(ended) => Ok(tokio::spawn(ended)),
        None => Err(Stop::Failed("a hold that lives in a session does not report the end of its session".into())),
    }
}

/// Ends when a renewal that followed a hint is answered with the loss, as the engine would learn of it.
async fn learns(client: &Client, hold: &Hold, mut ended: JoinHandle<()>) {
    loop {
        let _ = ended.await;
        if let Some(Ok(Standing::Lost)) = client.backend.renew(&[hold]).await.pop() {
            return;
        }
        // A wrong hint, or a store that did not answer.
        pause(10).await;
        ended = match listen(hold) {
            Ok(again) => again,
            Err(_) => std::future::pending().await,
        };
    }
}

fn window(fixture: &Fixture<'_>) -> Duration {
    match fixture.profile.expiry {
        Expiry::Session { told } => told,
        _ => Duration::ZERO,
    }
}
