//! Runs once per period.

use super::*;

fn once(period: Duration, rerun: bool) -> Arc<Claim> {
    once_from(Duration::ZERO, period, rerun)
}

fn once_from(offset: Duration, period: Duration, rerun: bool) -> Arc<Claim> {
    Arc::new(
        Claim::clone(&claim("k"))
            .with(|claim| claim.once_per = Some(Box::new(OncePer::new(period).offset(offset).rerun(rerun)))),
    )
}

fn is_over(store: &Memory, claim: &Arc<Claim>) -> bool {
    matches!(ask(store, claim, Queue::Leave), Attempt::AlreadyRun)
}

/// To a boundary between two periods of a minute: half past.
fn to_boundary(clock: &Clock) {
    let into = (clock.wall_ms() + 30_000) % 60_000;
    clock.advance(Duration::from_millis(60_000 - into));
}

#[test]
fn a_period_has_one_start_around_its_boundary() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    to_boundary(&clock);
    let minute = || once(60 * SECOND, true);
    let hold = take(&store, &minute());
    assert!(is_over(&store, &once(60 * SECOND, false)), "the winner still holds");
    assert!(is_refused(&store, &minute()), "it may have to be run again");
    end(&store, &hold, None, Some(RunEnd::Failed));
    clock.advance(60 * SECOND - Duration::from_millis(1));
    assert!(is_over(&store, &minute()), "the same period: nearest boundary");
    clock.advance(Duration::from_millis(1));
    take(&store, &minute());
    assert!(is_over(&store, &once(60 * SECOND, false)));
}

#[test]
fn a_run_of_an_earlier_period_contends() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    to_boundary(&clock);
    clock.advance(60 * SECOND - SECOND / 2);
    let hold = take(&store, &once(60 * SECOND, false));
    clock.advance(SECOND / 2);
    let [mut one, mut other] = [(); 2].map(|()| stand(&store, &once(60 * SECOND, false)));
    release(&store, &hold);
    assert!(granted(&mut one).is_some());
    let told = other.signal.as_mut().unwrap().now_or_never();
    assert!(matches!(told, Some(Ok(Signal::Ask))), "it hears at once that the run was started");
    assert!(is_over(&store, &once(60 * SECOND, false)));
}

#[test]
fn a_crashed_run_is_repeated_only_if_asked_for_and_when_its_lease_is_over() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    to_boundary(&clock);
    let crashed = take(&store, &once(60 * SECOND, false));
    assert!(is_refused(&store, &once(60 * SECOND, true)), "its lease runs");
    clock.advance(SECOND);
    assert!(is_over(&store, &once(60 * SECOND, false)));
    let again = take(&store, &once(60 * SECOND, true));
    assert!(again.token > crashed.token);
    end(&store, &again, None, Some(RunEnd::Succeeded { took: SECOND }));
    assert!(is_over(&store, &once(60 * SECOND, true)));
}

#[test]
fn a_caller_that_would_rerun_takes_over_or_hears_of_the_end() {
    let clock = Clock::manual();
    let store = &Memory::with_clock(&clock);
    for (keep, run) in [(None, Some(RunEnd::Failed)), (Some(SECOND), Some(RunEnd::Failed)), (None, None)] {
        to_boundary(&clock);
        let winner = take(store, &once(60 * SECOND, true));
        let plain = stand(store, &claim("k"));
        let mut wakes = [(); 2].map(|()| stand(store, &once(60 * SECOND, true)));
        drop(plain);
        end(store, &winner, keep, run);
        let mut told = wakes.each_mut().map(|wake| wake.signal.as_mut().unwrap().now_or_never());
        if run.is_some() {
            assert!(told.iter().all(|told| matches!(told, Some(Ok(Signal::Ask)))), "{told:?}");
            assert!(is_over(store, &once(60 * SECOND, true)));
        } else {
            let Some(Ok(Signal::Granted(again))) = told[0].take() else { panic!("{told:?}") };
            assert!(told[1].is_none(), "the other goes on waiting");
            end(store, &again, None, Some(RunEnd::Failed));
            assert!(granted(&mut wakes[1]).is_none(), "it was run");
        }
        clock.advance(60 * SECOND);
    }
}

#[test]
fn the_last_success_stays_and_starts_do_not() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let key = claim("k").key.clone();
    let last = || futures::executor::block_on(store.last_success(&key)).unwrap();
    assert_eq!(last(), None);
    let began = clock.wall_ms();
    let hold = take(&store, &once(60 * SECOND, false));
    clock.advance(SECOND / 2);
    end(&store, &hold, Some(SECOND), Some(RunEnd::Succeeded { took: SECOND / 2 }));
    let told = last().unwrap();
    assert_eq!(told.started.duration_since(std::time::UNIX_EPOCH).unwrap(), Duration::from_millis(began));
    assert_eq!((told.took, &told.note), (SECOND / 2, &hold.claim.note));
    clock.advance(60 * SECOND);
    let hold = take(&store, &once(60 * SECOND, false));
    end(&store, &hold, None, Some(RunEnd::Failed));
    assert_eq!(last(), Some(told));
    assert!(store.is_empty());
}

#[test]
fn boundaries_begin_at_the_offset() {
    const DAY: Duration = Duration::from_secs(86_400);
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let daily = || once_from(DAY / 2, DAY, false);
    let into = Duration::from_millis(clock.wall_ms() % 86_400_000);
    // Two seconds before noon UTC.
    clock.advance(DAY * 3 / 2 - into - 2 * SECOND);
    let hold = take(&store, &daily());
    end(&store, &hold, None, Some(RunEnd::Failed));
    clock.advance(4 * SECOND);
    assert!(is_over(&store, &daily()), "on both sides of noon it is one run");
    clock.advance(DAY / 2 - 3 * SECOND);
    assert!(is_over(&store, &daily()));
    clock.advance(SECOND);
    take(&store, &daily());
}

#[test]
fn a_period_of_another_length_is_compared_by_its_time() {
    let clock = Clock::manual();
    let store = Memory::with_clock(&clock);
    let into = Duration::from_millis(clock.wall_ms() % 3_600_000);
    clock.advance(3600 * SECOND - into);
    for period in [60 * SECOND, 3600 * SECOND, 60 * SECOND] {
        let hold = take(&store, &once(period, false));
        end(&store, &hold, None, Some(RunEnd::Failed));
        // The hour's boundary is this minute's too.
        assert!(is_over(&store, &once(60 * SECOND, false)));
        assert!(is_over(&store, &once(3600 * SECOND, false)));
        clock.advance(3600 * SECOND);
    }
}
