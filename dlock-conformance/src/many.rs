//! Many locks of one client at once.

use std::time::Duration;

use dlock_contract::{Attempt, Error, Hold, Queue, RunsOn, Standing};
use futures::future::try_join_all;

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::tested::{SLACK, Stop, Tested, pause};

pub(crate) const CASES: &[Case] = &[
    case!("many keys are as many locks, and all of them are held at once", always, at_once),
    case!("each of many holds that are renewed in one request is renewed", always, renewed),
];

/// With this many keys, the hashes of some have the same 16 bits.
const KEYS: usize = 600;

/// More than a store may renew in one step.
const BATCH: usize = 130;

/// The number of requests that are under way at once.
const AT_ONCE: usize = 16;

/// The keys for a store in which each hold has a connection.
const CONNECTIONS: usize = 40;

async fn at_once(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    let mut holds = Vec::new();
    for answer in ask_for(fixture, &one, KEYS, fixture.long()).await? {
        let Attempt::Acquired(hold) = answer else {
            return Err(Stop::Failed(format!("after {} other keys, a free lock was refused", holds.len())));
        };
        holds.push(hold);
    }
    let standings = renew_all(fixture, &one, &holds.iter().collect::<Vec<_>>()).await?;
    for (hold, standing) in holds.iter().zip(standings) {
        if standing == Standing::Lost {
            one.in_time(hold.validity)?;
            return Err(Stop::Failed(format!("of {} locks that are held at once, one is lost", holds.len())));
        }
    }
    if let Some(first) = holds.first() {
        other.refused(&fixture.claim(&first.claim.key, fixture.long())?, Queue::Leave, first.validity).await?;
    }
    give_back(&one, &holds).await
}

async fn renewed(fixture: &Fixture<'_>) -> Tested {
    let client = fixture.client().await?;
    // Taken before the others, and asked for at both ends of the request: the order of answers is not the matter here.
    let ended = take(fixture, &client, 8).await?;
    let kept = take(fixture, &client, BATCH).await?;
    // Otherwise a lease that was not renewed would end as late as one that was.
    tokio::time::sleep(fixture.profile.ttl.step + Duration::from_millis(300)).await;
    give_back(&client, &ended).await?;
    let (before, after) = ended.split_at(ended.len() / 2);
    let standings = renew_all(fixture, &client, &before.iter().chain(&kept).chain(after).collect::<Vec<_>>()).await?;
    let is_kept = before.len()..before.len() + kept.len();
    for (at, standing) in standings.iter().enumerate() {
        match standing {
            Standing::Renewed(validity) if is_kept.contains(&at) => {
                client.lasts_if_told(&kept[at - before.len()], *validity).await?;
            }
            Standing::Lost if is_kept.contains(&at) => {
                client.in_time(kept[at - before.len()].validity)?;
                return Err(Stop::Failed(format!(
                    "of {} holds that are renewed together, one is lost",
                    standings.len()
                )));
            }
            Standing::Renewed(_) => {
                return Err(Stop::Failed(format!(
                    "of {} holds that are renewed together, one was renewed after its release",
                    standings.len()
                )));
            }
            Standing::Lost => {}
        }
    }
    give_back(&client, &kept).await
}

/// Asks for locks of this many keys, or of as many as the store has connections for.
async fn ask_for(fixture: &Fixture<'_>, client: &Client, keys: usize, ttl: Duration) -> Tested<Vec<Attempt>> {
    let most = if fixture.profile.runs_on == RunsOn::OwnThread { CONNECTIONS } else { usize::MAX };
    let claims = (0..keys.min(most)).map(|_| fixture.claim(&fixture.key()?, ttl)).collect::<Tested<Vec<_>>>()?;
    let mut answers = Vec::with_capacity(claims.len());
    for some in claims.chunks(AT_ONCE) {
        answers.extend(try_join_all(some.iter().map(|claim| client.ask(claim, Queue::Leave))).await?);
    }
    Ok(answers)
}

/// Takes locks for some seconds. The case before looks at refusals.
async fn take(fixture: &Fixture<'_>, client: &Client, keys: usize) -> Tested<Vec<Hold>> {
    let answers = ask_for(fixture, client, keys, fixture.some_seconds()).await?;
    let hold = |answer| if let Attempt::Acquired(hold) = answer { Some(hold) } else { None };
    Ok(answers.into_iter().filter_map(hold).collect())
}

/// One request for all of them, again until it has an answer. Another case counts the answers.
async fn renew_all(fixture: &Fixture<'_>, client: &Client, holds: &[&Hold]) -> Tested<Vec<Standing>> {
    let end = fixture.clock.now().after(SLACK);
    loop {
        let answers = client.backend.renew(holds).await;
        match answers.into_iter().collect::<Result<Vec<_>, Error>>() {
            Err(error) if error.is_retryable() && fixture.clock.now() < end => pause(20).await,
            answers => return Ok(answers?),
        }
    }
}

async fn give_back(client: &Client, holds: &[Hold]) -> Tested {
    for some in holds.chunks(AT_ONCE) {
        try_join_all(some.iter().map(|hold| client.give_back(hold))).await?;
    }
    Ok(())
}
