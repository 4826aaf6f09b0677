use dlock_contract::Clock;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(run_id: &str, uptime: u64, durable: bool) -> Seen {
    let uptime = Duration::from_secs(uptime);
    Seen { run_id: run_id.into(), uptime, durable, history: history(run_id, false), evicts: None }
}

fn history(name: &str, is_heir: bool) -> History {
    History { name: name.into(), is_heir, is_primary: true }
}

fn guards(restart: Guard, failover: Guard) -> Guards {
    Guards::new(&Settings { restart_guard: restart, failover_guard: failover, ..Settings::default() })
}

#[test]
fn a_restart_that_was_seen_keeps_grants_back_for_the_longest_ttl_since_the_start() {
    let (clock, guards) = (Clock::manual(), guards(Guard::Auto, Guard::Auto));
    clock.advance(SECOND * 1000);
    guards.asks_for(SECOND * 7);
    guards.asks_for(SECOND);
    guards.met(seen("a", 500, false), clock.now(), &"");
    guards.check(|| clock.now()).unwrap();
    clock.advance(SECOND * 10);
    guards.met(seen("b", 3, false), clock.now(), &"");
    assert!(guards.check(|| clock.now()).unwrap_err().is_retryable());
    clock.advance(SECOND * 4);
    // Its third second may have been over just after the second one.
    guards.check(|| clock.now()).unwrap_err();
    clock.advance(SECOND);
    guards.check(|| clock.now()).unwrap();
    // The same one again is nothing new.
    guards.met(seen("b", 7, false), clock.now(), &"");
    guards.check(|| clock.now()).unwrap();
}

#[test]
fn the_request_at_hand_counts_for_the_length_of_the_guard() {
    for other in [seen("b", 0, false), seen("b", 800, true)] {
        let (clock, guards) = (Clock::manual(), guards(Guard::Auto, Guard::Auto));
        clock.advance(SECOND * 1000);
        guards.met(seen("a", 500, false), clock.now(), &"");
        guards.asks_for(SECOND);
        guards.met(other, clock.now(), &"");
        clock.advance(SECOND * 3);
        guards.check(|| clock.now()).unwrap();
        guards.asks_for(SECOND * 12);
        guards.check(|| clock.now()).unwrap_err();
        clock.advance(SECOND * 9);
        guards.check(|| clock.now()).unwrap();
    }
}

#[test]
fn a_restart_is_one_although_the_end_before_it_was_noticed_after_it() {
    for (restart, free) in [(Guard::For(SECOND * 5), false), (Guard::Off, true)] {
        let (clock, guards) = (Clock::manual(), guards(restart, Guard::Off));
        clock.advance(SECOND * 1000);
        guards.met(seen("a", 500, false), clock.now(), &"");
        clock.advance(SECOND * 10);
        guards.ended(clock.now());
        guards.met(seen("b", 2, false), clock.now(), &"");
        assert_eq!(guards.check(|| clock.now()).is_ok(), free);
    }
}

#[test]
fn another_server_is_told_from_a_restart_by_when_the_connection_ended() {
    for (uptime, free) in [(500, false), (1, true)] {
        let (clock, guards) = (Clock::manual(), guards(Guard::Off, Guard::For(SECOND * 5)));
        clock.advance(SECOND * 1000);
        guards.met(seen("a", 500, false), clock.now(), &"");
        clock.advance(SECOND * 900);
        guards.ended(clock.now());
        clock.advance(SECOND * 2);
        guards.met(seen("b", uptime, false), clock.now(), &"");
        assert_eq!(guards.check(|| clock.now()).is_ok(), free, "{uptime}");
    }
}

#[test]
fn another_server_that_ran_before_counts_from_now() {
    let (clock, guards) = (Clock::manual(), guards(Guard::Off, Guard::For(SECOND * 5)));
    clock.advance(SECOND * 1000);
    guards.met(seen("a", 500, true), clock.now(), &"");
    guards.met(seen("b", 400, true), clock.now(), &"");
    clock.advance(SECOND * 4);
    guards.check(|| clock.now()).unwrap_err();
    clock.advance(SECOND);
    guards.check(|| clock.now()).unwrap();
}

#[test]
fn a_server_that_was_promoted_since_it_was_seen_counts_from_now() {
    // Of the same run, and of a restart long ago; without a predecessor, only its first replica has come.
    for (run_id, uptime, is_heir, free) in
        [("a", 500, true, false), ("b", 100, true, false), ("a", 500, false, true), ("b", 100, false, true)]
    {
        let (clock, guards) = (Clock::manual(), guards(Guard::Auto, Guard::For(SECOND * 5)));
        guards.asks_for(SECOND * 50);
        clock.advance(SECOND * 1000);
        guards.met(seen("a", 500, true), clock.now(), &"");
        clock.advance(SECOND * 400);
        let promoted = || Seen { history: history("other", is_heir), ..seen(run_id, uptime, true) };
        guards.met(promoted(), clock.now(), &"");
        assert_eq!(guards.check(|| clock.now()).is_ok(), free, "{run_id} {is_heir}");
        clock.advance(SECOND * 5);
        guards.met(promoted(), clock.now(), &"");
        guards.check(|| clock.now()).unwrap();
    }
}

#[test]
fn a_promotion_that_is_heard_of_over_an_open_connection_counts_once() {
    let (clock, guards) = (Clock::manual(), guards(Guard::Off, Guard::For(SECOND * 5)));
    clock.advance(SECOND * 1000);
    guards.met(seen("a", 500, true), clock.now(), &"");
    // Its first replica has come.
    guards.heard(history("b", false), clock.now(), &"");
    guards.check(|| clock.now()).unwrap();
    for free in [false, true] {
        guards.heard(history("c", true), clock.now(), &"");
        assert_eq!(guards.check(|| clock.now()).is_ok(), free);
        clock.advance(SECOND * 5);
    }
}

#[test]
fn a_primary_that_starts_from_its_snapshot_is_guarded_as_restarted_at_least() {
    let (clock, guards) = (Clock::manual(), guards(Guard::For(SECOND * 5), Guard::Off));
    clock.advance(SECOND * 1000);
    guards.met(seen("a", 500, false), clock.now(), &"");
    clock.advance(SECOND * 10);
    guards.met(Seen { history: history("b", true), ..seen("b", 1, false) }, clock.now(), &"");
    guards.check(|| clock.now()).unwrap_err();
}

#[test]
fn what_is_on_disk_is_not_forgotten_and_a_young_server_is_suspect_by_name_only() {
    let clock = Clock::manual();
    clock.advance(SECOND * 1000);
    for (restart, first, then, free) in [
        (Guard::Auto, seen("a", 1, false), None, true),
        (Guard::For(SECOND * 5), seen("a", 1, false), None, false),
        (Guard::For(SECOND * 5), seen("a", 1, true), None, true),
        (Guard::For(SECOND * 5), seen("a", 9, false), None, true),
        (Guard::For(SECOND * 5), seen("a", 9, false), Some(seen("b", 0, true)), true),
        (Guard::For(SECOND * 5), seen("a", 9, false), Some(seen("b", 0, false)), false),
    ] {
        let guards = guards(restart, Guard::Off);
        guards.met(first, clock.now(), &"");
        if let Some(then) = then {
            guards.met(then, clock.now(), &"");
        }
        assert_eq!(guards.check(|| clock.now()).is_ok(), free, "{restart:?}");
    }
}
