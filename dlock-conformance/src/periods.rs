//! Periods: their boundaries and the clock by which they are counted, and the record of the last success.

use std::time::{Duration, SystemTime};

use dlock_contract::{Attempt, OncePer, Queue, RunEnd};
use dlock_store::Clock;

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::runs::{HOUR, SUCCEEDED, again, expect_already_run, long_period};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("the next period has a start of its own", periods, next_period),
    case!("a run of an earlier period that goes on is contention", periods, earlier_period),
    case!("the boundaries of periods come after their offset", periods, offset),
    case!("periods are counted by the store's clock", periods, stores_clock),
    case!("the last success is reported, and a failure is not", periods, last_success),
    case!("a success without a period is reported, and neither starts nor ends a period", periods, without_period),
];

/// A period that ends during the case.
fn short(fixture: &Fixture<'_>) -> OncePer {
    OncePer::new(fixture.short().max(Duration::from_secs(1)))
}

async fn next_period(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, short(fixture), fixture.client().await?);
    for _ in 0..2 {
        let claim = fixture.claim_once(once, &key, fixture.long())?;
        let hold = one.take_within(&claim, once.period * 2 + SLACK).await?;
        one.end(&hold, None, Some(SUCCEEDED)).await?;
    }
    Ok(())
}

async fn earlier_period(fixture: &Fixture<'_>) -> Tested {
    let (key, once) = (fixture.key()?, short(fixture));
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    let claim = fixture.claim_once(once, &key, fixture.long())?;
    let until = Queue::until(fixture.clock.now().after(fixture.long()));
    let end = fixture.clock.now().after(once.period * 2 + SLACK);
    let wake = loop {
        let asked = fixture.clock.now();
        match other.ask(&claim, until).await? {
            Attempt::Contended(wake) => break wake,
            Attempt::AlreadyRun => {}
            Attempt::Acquired(_) => {
                one.in_time(hold.validity)?;
                return Err(Stop::Failed("a run was started while the run of an earlier period went on".into()));
            }
        }
        ensure!(asked < end, "in the next period, a run was reported as started, but it was not");
        pause(20).await;
    };
    one.give_back(&hold).await?;
    let next = other.wait_on(&claim, Some(wake), SLACK * 2).await?;
    other.end(&next, None, Some(SUCCEEDED)).await
}

async fn offset(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let period = HOUR * 100;
    // Half a period before or after now, so the boundary is far away by any clock that is not wrong by hours.
    let now = fixture.clock.wall_ms() / 1000;
    let boundary_at = |hours: i64| {
        let at = (now + period.as_secs()).saturating_add_signed(hours * 3600);
        OncePer::new(period).offset(Duration::from_secs(at % period.as_secs()))
    };
    for hours in [0, 10] {
        let hold = one.take(&fixture.claim_once(boundary_at(hours), &key, fixture.long())?).await?;
        one.end(&hold, None, Some(SUCCEEDED)).await?;
        for earlier in [hours - 10, hours] {
            let claim = fixture.claim_once(boundary_at(earlier), &key, fixture.long())?;
            expect_already_run(&one, &claim, Queue::Leave, "a run of this boundary or a later one was started").await?;
        }
    }
    Ok(())
}

async fn stores_clock(fixture: &Fixture<'_>) -> Tested {
    let (key, once, one) = (fixture.key()?, long_period(), fixture.client().await?);
    let hold = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    one.end(&hold, None, Some(SUCCEEDED)).await?;
    let period = i64::try_from(once.period.as_millis()).unwrap_or(i64::MAX);
    for skew in [period, -period] {
        let wrong = fixture.client_with(Clock::with_wall_skew(skew)).await?;
        let claim = fixture.claim_once(once, &key, fixture.long())?;
        expect_already_run(&wrong, &claim, Queue::Leave, &format!("a client's clock is wrong by {skew} ms")).await?;
    }
    Ok(())
}

async fn last_success(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let before = other.periods()?.last_success(&key).await?;
    ensure!(before.is_none(), "a run that was never started has succeeded: {before:?}");
    let hold = one.take(&fixture.claim_once(long_period(), &key, fixture.long())?).await?;
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
    let key = fixture.key()?;
    let hold = one.take(&fixture.claim_once(long_period(), &key, fixture.long())?).await?;
    one.end(&hold, None, Some(RunEnd::Failed)).await?;
    let success = other.periods()?.last_success(&key).await?;
    ensure!(success.is_none(), "a run that failed is reported as the last success: {success:?}");
    Ok(())
}

async fn without_period(fixture: &Fixture<'_>) -> Tested {
    let (key, one, once) = (fixture.key()?, fixture.client().await?, long_period());
    let failed = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.end(&failed, None, Some(RunEnd::Failed)).await?;
    let success = one.periods()?.last_success(&key).await?;
    ensure!(success.is_none(), "a run that failed is reported as the last success: {success:?}");
    let plain = one.take(&fixture.claim(&key, fixture.long())?).await?;
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
    fixture.clean(&key, "after all were released").await?;
    // It has not started the run of any period.
    let run = one.take(&fixture.claim_once(once, &key, fixture.long())?).await?;
    one.give_back(&run).await?;
    // The run of the period has started and has not ended, and this does not end it.
    let plain = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.end(&plain, None, Some(SUCCEEDED)).await?;
    let run = one.take(&fixture.claim_once(again(once), &key, fixture.long())?).await?;
    one.end(&run, None, Some(RunEnd::Failed)).await
}
