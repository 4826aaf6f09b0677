//! Periods: one start in each period.

use std::time::{Duration, SystemTime};

use dlock_contract::{Attempt, Claim, Clock, OncePer, Queue, RunEnd};
use futures::future::{join, join_all};

use crate::bench::{Bench, SLACK, Stop, Tested, case, ensure, pause};
use crate::case::Case;
use crate::client::Client;

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
    case!("the next period has a start of its own", periods, next_period),
    case!("a run of an earlier period that goes on is contention", periods, earlier_period),
    case!("the boundaries of periods come after their offset", periods, offset),
    case!("periods are counted by the store's clock", periods, stores_clock),
    case!("the last success is reported, and a failure is not", periods, last_success),
    case!("a success without a period is reported, and neither starts nor ends a period", periods, without_period),
];

const HOUR: Duration = Duration::from_secs(3600);
const SUCCEEDED: RunEnd = RunEnd::Succeeded { took: Duration::from_millis(1234) };

/// A period of many hours. Its next boundary is more than an hour away, by any clock that is not wrong by hours.
fn long_period() -> OncePer {
    let now = Duration::from_millis(Clock::system().wall_ms()).as_secs();
    let hours = |hours: &u64| {
        let period = hours * HOUR.as_secs();
        let into = (now + period / 2) % period;
        (2 * HOUR.as_secs()..period - 2 * HOUR.as_secs()).contains(&into)
    };
    let hours = (100..200).find(hours).unwrap_or(100);
    OncePer::new(HOUR * u32::try_from(hours).unwrap_or(100))
}

/// A period that ends during the case.
fn short(bench: &Bench<'_>) -> OncePer {
    OncePer::new(bench.short().max(Duration::from_secs(1)))
}

fn again(once: OncePer) -> OncePer {
    once.rerun(true)
}

/// Asks for a run that was already started. Any other answer is a failure.
async fn expect_already_run(client: &Client, claim: &std::sync::Arc<Claim>, queue: Queue, what: &str) -> Tested {
    match client.ask(claim, queue).await? {
        Attempt::AlreadyRun => Ok(()),
        other => Err(Stop::Failed(format!("{what}, and the answer was {other:?}"))),
    }
}

async fn one_start(bench: &Bench<'_>) -> Tested {
    let (key, once) = (bench.key()?, long_period());
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(bench.client().await?);
    }
    let mut started = 0;
    for _ in 0..3 {
        let runs = clients.iter().map(|client| async {
            let claim = bench.claim_once(once, &key, bench.long())?;
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

async fn goes_on(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let hold = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    let before = bench.leftovers(&key).await?.len();
    for queue in [Queue::Leave, Queue::until(bench.clock.now().after(bench.long()))] {
        let claim = bench.claim_once(once, &key, bench.long())?;
        expect_already_run(&one, &claim, queue, "a run of this period goes on").await?;
    }
    let found = bench.leftovers(&key).await?;
    ensure!(found.len() == before, "callers that came too late left something in the store: {}", found.join(", "));
    // The owner of the run itself gets its hold again.
    one.take(&hold.claim).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    Ok(())
}

async fn one_of_those_who_wait(bench: &Bench<'_>) -> Tested {
    let (key, once, one, other) = (bench.key()?, long_period(), bench.client().await?, bench.client().await?);
    let holder = one.take(&bench.claim(&key, bench.long())?).await?;
    let claims = [bench.claim_once(once, &key, bench.long())?, bench.claim_once(once, &key, bench.long())?];
    let until = Queue::until(bench.clock.now().after(bench.long()));
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

async fn ended(bench: &Bench<'_>) -> Tested {
    let (once, one) = (long_period(), bench.client().await?);
    for end in [RunEnd::Failed, SUCCEEDED] {
        let key = bench.key()?;
        let hold = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
        one.end(&hold, None, Some(end)).await?;
        for once in [once, again(once)] {
            let claim = bench.claim_once(once, &key, bench.long())?;
            expect_already_run(&one, &claim, Queue::Leave, &format!("the run has ended ({end:?})")).await?;
        }
        // Only the run is recorded: the key itself is free.
        let plain = one.take(&bench.claim(&key, bench.long())?).await?;
        one.give_back(&plain).await?;
        bench.clean(&key, "after all were released").await?;
    }
    Ok(())
}

async fn released(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let hold = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    one.give_back(&hold).await?;
    let claim = bench.claim_once(once, &key, bench.long())?;
    expect_already_run(&one, &claim, Queue::Leave, "the run was started, and its lock released").await
}

async fn abandoned(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let claim = bench.claim_once(once, &key, bench.long())?;
    one.take(&claim).await?;
    for _ in 0..2 {
        one.backend.abandon(&claim).await?;
    }
    bench.clean(&key, "after an abandon").await?;
    let hold = match one.ask(&bench.claim_once(once, &key, bench.long())?, Queue::Leave).await? {
        Attempt::Acquired(hold) => hold,
        answer => return Err(Stop::Failed(format!("nothing has run in this period, and the answer was {answer:?}"))),
    };
    one.backend.abandon(&claim).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    one.backend.abandon(&claim).await?;
    let next = bench.claim_once(once, &key, bench.long())?;
    expect_already_run(&one, &next, Queue::Leave, "another claim than the one that ran was abandoned").await
}

async fn abandoned_rerun(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    // A claim without a period, which changes nothing.
    let plain = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let died = one.take(&bench.claim_once(again(once), &key, bench.short())?).await?;
    let claim = bench.claim_once(again(once), &key, bench.long())?;
    let hold = one.take_within(&claim, bench.takeover(bench.short())).await?;
    ensure!(hold.token > died.token, "a run was repeated, and its token is not above the first one");
    one.backend.abandon(&claim).await?;
    // The result of the first run is not known.
    let unasked = bench.claim_once(once, &key, bench.long())?;
    expect_already_run(
        &one,
        &unasked,
        Queue::Leave,
        "the run was started, and the claim that would repeat it was abandoned",
    )
    .await?;
    let hold = one.take(&bench.claim_once(again(once), &key, bench.long())?).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    Ok(())
}

async fn asks_again(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let claim = bench.claim_once(once, &key, bench.long())?;
    let late = one.take(&claim).await?;
    // As the engine does if a grant has already expired when it arrives.
    one.give_back(&late).await?;
    let hold = match one.ask(&claim, Queue::Leave).await? {
        Attempt::Acquired(hold) => hold,
        answer => return Err(Stop::Failed(format!("a claim that asked again for its own run got {answer:?}"))),
    };
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    Ok(())
}

async fn died(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let hold = one.take(&bench.claim_once(once, &key, bench.short())?).await?;
    let over_at = bench.profile.takeover(hold.validity.granted) + Duration::from_millis(250);
    let over_at = hold.validity.from.after(over_at);
    let claim = bench.claim_once(once, &key, bench.long())?;
    while bench.clock.now() < over_at {
        // It may be reported as contention until then.
        if let Attempt::Acquired(_) = one.ask(&claim, Queue::Leave).await? {
            return Err(Stop::Failed("a run that had been started was started again".into()));
        }
        pause(20).await;
    }
    expect_already_run(&one, &claim, Queue::Leave, "the run was started, and its lease has ended").await
}

async fn rerun(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let hold = one.take(&bench.claim_once(once, &key, bench.short())?).await?;
    let claim = bench.claim_once(again(once), &key, bench.long())?;
    let end = bench.clock.now().after(bench.takeover(bench.short()));
    let second = loop {
        if let Attempt::Acquired(second) = one.ask(&claim, Queue::Leave).await? {
            break second;
        }
        ensure!(bench.clock.now() < end, "a run whose process died was not started again");
        pause(10).await;
    };
    let early = hold.validity.deadline().since(bench.clock.now());
    ensure!(early.is_zero(), "a run was started again {early:?} before its lease had ended");
    one.end(&second, None, Some(RunEnd::Failed)).await?;
    Ok(())
}

/// As after a cancelled caller: the lock is free, and the result of the run is not known.
async fn given_back(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, again(long_period()), bench.client().await?);
    // A claim without a period, which changes nothing.
    let plain = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let first = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    let claim = bench.claim_once(once, &key, bench.long())?;
    let until = Queue::until(bench.clock.now().after(bench.long()));
    let wake = one.refused(&claim, until, first.validity).await?;
    one.give_back(&first).await?;
    // It goes to a waiter, and then to a caller that asks.
    let second = one.wait_on(&claim, Some(wake), SLACK * 2).await?;
    one.give_back(&second).await?;
    let third = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    one.end(&third, None, Some(SUCCEEDED)).await?;
    Ok(())
}

async fn waits_to_rerun(bench: &Bench<'_>) -> Tested {
    let (once, one) = (again(long_period()), bench.client().await?);
    // So long that a waiter that hears only of the end of this lease hears too late.
    let kept = bench.closed.keeps().map(|_| SLACK * 12);
    for keep in std::iter::once(None).chain(kept.map(Some)) {
        let key = bench.key()?;
        let hold = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
        let before = bench.leftovers(&key).await?.len();
        one.refused(&bench.claim_once(once, &key, bench.long())?, Queue::Leave, hold.validity).await?;
        let found = bench.leftovers(&key).await?;
        ensure!(found.len() == before, "a caller that did not wait left something in the store: {}", found.join(", "));
        let claim = bench.claim_once(once, &key, bench.long())?;
        let until = Queue::until(bench.clock.now().after(bench.long()));
        let wake = one.refused(&claim, until, hold.validity).await?;
        one.end(&hold, keep, Some(SUCCEEDED)).await?;
        let again = one.outcome(&claim, Some(wake), SLACK * 2).await?;
        ensure!(again.is_none(), "a run that has ended was started again");
    }
    Ok(())
}

async fn next_period(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, short(bench), bench.client().await?);
    for _ in 0..2 {
        let claim = bench.claim_once(once, &key, bench.long())?;
        let hold = one.take_within(&claim, once.period * 2 + SLACK).await?;
        one.end(&hold, None, Some(SUCCEEDED)).await?;
    }
    Ok(())
}

async fn earlier_period(bench: &Bench<'_>) -> Tested {
    let (key, once) = (bench.key()?, short(bench));
    let (one, other) = (bench.client().await?, bench.client().await?);
    let hold = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    let claim = bench.claim_once(once, &key, bench.long())?;
    let until = Queue::until(bench.clock.now().after(bench.long()));
    let end = bench.clock.now().after(once.period * 2 + SLACK);
    let wake = loop {
        match other.ask(&claim, until).await? {
            Attempt::Contended(wake) => break wake,
            Attempt::AlreadyRun => {}
            Attempt::Acquired(_) => {
                one.in_time(hold.validity)?;
                return Err(Stop::Failed("a run was started while the run of an earlier period went on".into()));
            }
        }
        ensure!(bench.clock.now() < end, "in the next period, a run was reported as started, but it was not");
        pause(20).await;
    };
    one.give_back(&hold).await?;
    let next = other.wait_on(&claim, Some(wake), SLACK * 2).await?;
    other.end(&next, None, Some(SUCCEEDED)).await?;
    Ok(())
}

async fn offset(bench: &Bench<'_>) -> Tested {
    let (key, one) = (bench.key()?, bench.client().await?);
    let period = HOUR * 100;
    // Half a period before or after now, so the boundary is far away by any clock that is not wrong by hours.
    let now = bench.clock.wall_ms() / 1000;
    let boundary_at = |hours: i64| {
        let at = (now + period.as_secs()).saturating_add_signed(hours * 3600);
        OncePer::new(period).offset(Duration::from_secs(at % period.as_secs()))
    };
    for hours in [0, 10] {
        let hold = one.take(&bench.claim_once(boundary_at(hours), &key, bench.long())?).await?;
        one.end(&hold, None, Some(SUCCEEDED)).await?;
        for earlier in [hours - 10, hours] {
            let claim = bench.claim_once(boundary_at(earlier), &key, bench.long())?;
            expect_already_run(&one, &claim, Queue::Leave, "a run of this boundary or a later one was started").await?;
        }
    }
    Ok(())
}

async fn stores_clock(bench: &Bench<'_>) -> Tested {
    let (key, once, one) = (bench.key()?, long_period(), bench.client().await?);
    let hold = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    let period = i64::try_from(once.period.as_millis()).unwrap_or(i64::MAX);
    for skew in [period, -period] {
        let wrong = bench.client_with(Clock::with_wall_skew(skew)).await?;
        let claim = bench.claim_once(once, &key, bench.long())?;
        expect_already_run(&wrong, &claim, Queue::Leave, &format!("a client's clock is wrong by {skew} ms")).await?;
    }
    Ok(())
}

async fn last_success(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let before = other.periods()?.last_success(&key).await?;
    ensure!(before.is_none(), "a run that was never started has succeeded: {before:?}");
    let hold = one.take(&bench.claim_once(long_period(), &key, bench.long())?).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    let success = other.periods()?.last_success(&key).await?;
    let Some(success) = success else {
        return Err(Stop::Failed("a run has succeeded, and there is no last success".into()));
    };
    ensure!(RunEnd::Succeeded { took: success.took } == SUCCEEDED, "a run that took 1.234s took {:?}", success.took);
    ensure!(
        success.note == hold.claim.note,
        "the run of {} is reported as the run of {}",
        hold.claim.note,
        success.note
    );
    // The store's clock may differ, but not by a day.
    let now = SystemTime::now();
    let difference =
        now.duration_since(success.started).or_else(|_| success.started.duration_since(now)).unwrap_or(Duration::MAX);
    ensure!(difference < HOUR * 24, "a run that was started just now was started at {:?}", success.started);
    let key = bench.key()?;
    let hold = one.take(&bench.claim_once(long_period(), &key, bench.long())?).await?;
    one.end(&hold, None, Some(RunEnd::Failed)).await?;
    let success = other.periods()?.last_success(&key).await?;
    ensure!(success.is_none(), "a run that failed is reported as the last success: {success:?}");
    Ok(())
}

async fn without_period(bench: &Bench<'_>) -> Tested {
    let (key, one, once) = (bench.key()?, bench.client().await?, long_period());
    let failed = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&failed, None, Some(RunEnd::Failed)).await?;
    let success = one.periods()?.last_success(&key).await?;
    ensure!(success.is_none(), "a run that failed is reported as the last success: {success:?}");
    let plain = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let success = one.periods()?.last_success(&key).await?;
    let Some(success) = success else {
        return Err(Stop::Failed("a run has succeeded, and there is no last success".into()));
    };
    ensure!(RunEnd::Succeeded { took: success.took } == SUCCEEDED, "a run that took 1.234s took {:?}", success.took);
    ensure!(
        success.note == plain.claim.note,
        "the run of {} is reported as the run of {}",
        plain.claim.note,
        success.note
    );
    bench.clean(&key, "after all were released").await?;
    // It has not started the run of any period.
    let run = one.take(&bench.claim_once(once, &key, bench.long())?).await?;
    one.give_back(&run).await?;
    // The run of the period has started and has not ended, and this does not end it.
    let plain = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let run = one.take(&bench.claim_once(again(once), &key, bench.long())?).await?;
    one.end(&run, None, Some(RunEnd::Failed)).await?;
    Ok(())
}
