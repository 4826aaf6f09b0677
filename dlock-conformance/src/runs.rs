//! Runs: each period has one start, and an ended run is not started again.

use std::time::Duration;

use dlock_contract::{Attempt, Claim, OncePer, Queue, RunEnd};
use dlock_store::Clock;
use futures::future::{join, join_all};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a period has one start, however many callers ask", periods, one_start),
    case!("while a run goes on, other callers of its period hear that it was started", periods, goes_on),
    case!("one of several waiters for a run gets it", periods, one_of_those_who_wait),
    case!("a run that has ended is not started again, whatever its result", periods, ended),
    case!("a period stays started after the release", periods, released),
    case!("an abandoned start gives its own period back", periods, abandoned),
    case!("an abandoned second start of a run leaves the period started", periods, abandoned_rerun),
    case!("a claim that asks again for its own run gets it", periods, asks_again),
    case!("a run whose process died is not started again by default", periods, died),
    case!("with rerun, a run whose process died is started again once its lock is free", periods, rerun),
    case!("with rerun, a run that was released without a result can be started again at once", periods, given_back),
    case!("with rerun, a run that goes on is contention until its end", periods, waits_to_rerun),
];

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const SUCCEEDED: RunEnd = RunEnd::Succeeded { took: Duration::from_millis(1234) };

/// A period of many hours. Its next boundary is more than an hour away, by any clock that is not wrong by hours.
pub(crate) fn long_period() -> OncePer {
    let now = Duration::from_millis(Clock::system().wall_ms()).as_secs();
    let hours = |hours: &u64| {
        let period = hours * HOUR.as_secs();
        let into = (now + period / 2) % period;
        (2 * HOUR.as_secs()..period - 2 * HOUR.as_secs()).contains(&into)
    };
    let hours = (100..200).find(hours).unwrap_or(100);
    OncePer::new(HOUR * u32::try_from(hours).unwrap_or(100))
}

/// The same period; a run whose process died may be started again.
pub(crate) fn again(once: OncePer) -> OncePer {
    once.rerun(true)
}

/// Asks for a run that was already started. Any other answer is a failure.
pub(crate) async fn expect_already_run(
    client: &Client,
    claim: &std::sync::Arc<Claim>,
    queue: Queue,
    what: &str,
) -> Tested {
    match client.ask(claim, queue).await? {
        Attempt::AlreadyRun => Ok(()),
        other => Err(Stop::Failed(format!("{what}, and the answer was {other:?}"))),
    }
}

async fn one_start(fixture: &Fixture<'_>) -> Tested {
    let (key, once) = (fixture.key()?, long_period());
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(fixture.client().await?);
    }
    let mut started = 0;
    for _ in 0..3 {
        let runs = clients.iter().map(|client| async {
            let claim = fixture.claim_once(once, &key, fixture.long())?;
            let Attempt::Acquired(hold) = client.ask(&claim, Queue::Leave).await? else { return Ok(0) };
            // Released at once, so that the lock itself keeps nobody out.
            client.end(&hold, None, Some(SUCCEEDED)).await?;
            Tested::Ok(1)
        });
        for run in join_all(runs).await {
            started += run?;
        }
    }
    ensure!(started == 1, "{started} runs of one period were started");
    Ok(())
}

async fn goes_on(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let hold = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    let before = fixture.leftovers(&key).await?.len();
    for queue in [Queue::Leave, Queue::until(fixture.clock.now().after(fixture.long()))] {
        let claim = fixture.claim_once(once, &key, fixture.long())?;
        expect_already_run(&one, &claim, queue, "a run of this period goes on").await?;
    }
    let found = fixture.leftovers(&key).await?;
    ensure!(found.len() == before, "callers that came too late left something in the store: {}", found.join(", "));
    // The owner of the run itself gets its hold again.
    one.take(&hold.claim).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await
}

async fn one_of_those_who_wait(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one, other) = (fixture.key()?, long_period(), fixture.client().await?, fixture.client().await?);
    let holder = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let claims = [fixture.claim_once(once, &key, fixture.long())?, fixture.claim_once(once, &key, fixture.long())?];
    let until = Queue::until(fixture.clock.now().after(fixture.long()));
    let first = one.refused(&claims[0], until, holder.validity).await?;
    let second = other.refused(&claims[1], until, holder.validity).await?;
    one.give_back(&holder).await?;
    let bound = SLACK * 2;
    let wait = |client: Client, claim, wake| async move {
        let hold = client.outcome(claim, Some(wake), bound).await?;
        if let Some(hold) = &hold {
            // The lock itself must not keep the others out.
            client.end(hold, None, Some(SUCCEEDED)).await?;
        }
        Tested::Ok(hold.is_some())
    };
    let (first, second) = join(wait(one, &claims[0], first), wait(other, &claims[1], second)).await;
    let started = usize::from(first?) + usize::from(second?);
    ensure!(started == 1, "of two waiters for the run of one period, {started} got it");
    Ok(())
}

async fn ended(fixture: &Fixture<'_>) -> Tested {
    let (once, one) = (long_period(), fixture.client().await?);
    for end in [RunEnd::Failed, SUCCEEDED] {
        let key = fixture.key()?;
        let hold = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
        one.end(&hold, None, Some(end)).await?;
        for once in [once, again(once)] {
            let claim = fixture.claim_once(once, &key, fixture.long())?;
            expect_already_run(&one, &claim, Queue::Leave, &format!("the run has ended ({end:?})")).await?;
        }
        // Only the run is recorded: the key itself is free.
        let plain = one.take(&fixture.claim(&key, fixture.long())?).await?;
        one.give_back(&plain).await?;
        fixture.clean(&key, "after all were released").await?;
    }
    Ok(())
}

async fn released(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let hold = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    one.give_back(&hold).await?;
    let claim = fixture.claim_once(once, &key, fixture.long())?;
    expect_already_run(&one, &claim, Queue::Leave, "the run was started, and its lock released").await
}

async fn abandoned(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let claim = fixture.claim_once(once, &key, fixture.long())?;
    one.take(&claim).await?;
    for _ in 0..2 {
        one.backend.abandon(&claim).await?;
    }
    fixture.clean(&key, "after an abandon").await?;
    let hold = match one.ask(&fixture.claim_once(once, &key, fixture.long())?, Queue::Leave).await? {
        Attempt::Acquired(hold) => hold,
        answer => return Err(Stop::Failed(format!("nothing has run in this period, and the answer was {answer:?}"))),
    };
    one.backend.abandon(&claim).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    one.backend.abandon(&claim).await?;
    let next = fixture.claim_once(once, &key, fixture.long())?;
    expect_already_run(&one, &next, Queue::Leave, "another claim than the one that ran was abandoned").await
}

async fn abandoned_rerun(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    // A claim without a period, which changes nothing.
    let plain = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let died = one.take(&fixture.claim_once(again(once), &key, fixture.short())?).await?;
    let claim = fixture.claim_once(again(once), &key, fixture.long())?;
    let hold = one.take_within(&claim, fixture.takeover(fixture.short())).await?;
    ensure!(hold.token > died.token, "a run was repeated, and its token is not above the first one");
    one.backend.abandon(&claim).await?;
    // The result of the first run is not known.
    let unasked = fixture.claim_once(once, &key, fixture.long())?;
    expect_already_run(
        &one,
        &unasked,
        Queue::Leave,
        "the run was started, and the claim that would repeat it was abandoned",
    )
    .await?;
    let hold = one.take(&fixture.claim_once(again(once), &key, fixture.long())?).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await
}

async fn asks_again(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let claim = fixture.claim_once(once, &key, fixture.long())?;
    let late = one.take(&claim).await?;
    // As the engine does if a grant has already expired when it arrives.
    one.give_back(&late).await?;
    let hold = match one.ask(&claim, Queue::Leave).await? {
        Attempt::Acquired(hold) => hold,
        answer => return Err(Stop::Failed(format!("a claim that asked again for its own run got {answer:?}"))),
    };
    one.end(&hold, None, Some(SUCCEEDED)).await
}

async fn died(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let hold = one.take(&fixture.claim_once(once, &key, fixture.short())?).await?;
    let over_at = fixture.surely_over(hold.validity);
    let claim = fixture.claim_once(once, &key, fixture.long())?;
    while fixture.clock.now() < over_at {
        // It may be reported as contention until then.
        if let Attempt::Acquired(_) = one.ask(&claim, Queue::Leave).await? {
            return Err(Stop::Failed("a run that had been started was started again".into()));
        }
        pause(20).await;
    }
    expect_already_run(&one, &claim, Queue::Leave, "the run was started, and its lease has ended").await
}

async fn rerun(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let hold = one.take(&fixture.claim_once(once, &key, fixture.short())?).await?;
    let claim = fixture.claim_once(again(once), &key, fixture.long())?;
    let end = fixture.clock.now().after(fixture.takeover(fixture.short()));
    let second = loop {
        let asked = fixture.clock.now();
        if let Attempt::Acquired(second) = one.ask(&claim, Queue::Leave).await? {
            break second;
        }
        ensure!(asked < end, "a run whose process died was not started again");
        pause(10).await;
    };
    let early = hold.validity.deadline().since(fixture.clock.now());
    ensure!(early.is_zero(), "a run was started again {early:?} before its lease had ended");
    one.end(&second, None, Some(RunEnd::Failed)).await
}

/// As after a cancelled caller: the lock is free, and the result of the run is not known.
async fn given_back(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, again(long_period()), fixture.client().await?);
    // A claim without a period, which changes nothing.
    let plain = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let first = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    let claim = fixture.claim_once(once, &key, fixture.long())?;
    let until = Queue::until(fixture.clock.now().after(fixture.long()));
    let wake = one.refused(&claim, until, first.validity).await?;
    one.give_back(&first).await?;
    // It goes to a waiter, and then to a caller that asks.
    let second = one.wait_on(&claim, Some(wake), SLACK * 2).await?;
    one.give_back(&second).await?;
    let third = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    one.end(&third, None, Some(SUCCEEDED)).await
}

async fn waits_to_rerun(fixture: &Fixture<'_>) -> Tested {
    let (once, one) = (again(long_period()), fixture.client().await?);
    // Long enough that a waiter that hears only of the end of this lease is too late.
    let kept = fixture.closed.keeps().map(|_| SLACK * 12);
    for keep in std::iter::once(None).chain(kept.map(Some)) {
        let key = fixture.key()?;
        let hold = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
        let before = fixture.leftovers(&key).await?.len();
        one.refused(&fixture.claim_once(once, &key, fixture.long())?, Queue::Leave, hold.validity).await?;
        let found = fixture.leftovers(&key).await?;
        ensure!(found.len() == before, "a caller that did not wait left something in the store: {}", found.join(", "));
        let claim = fixture.claim_once(once, &key, fixture.long())?;
        let until = Queue::until(fixture.clock.now().after(fixture.long()));
        let wake = one.refused(&claim, until, hold.validity).await?;
        one.end(&hold, keep, Some(SUCCEEDED)).await?;
        let again = one.outcome(&claim, Some(wake), SLACK * 2).await?;
        ensure!(again.is_none(), "a run that has ended was started again");
    }
    Ok(())
}
