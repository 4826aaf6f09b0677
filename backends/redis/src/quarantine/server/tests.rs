use dlock_store::Clock;
use tracing_subscriber::util::SubscriberInitExt;

use super::*;
use crate::url::settings::GuardTime;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn seen(run_id: &str, uptime: u64, durable: bool) -> ServerDescription {
    let uptime = Duration::from_secs(uptime);
    ServerDescription { run_id: run_id.into(), uptime, durable, history: history(run_id, false), evicts: None }
}

fn history(name: &str, is_heir: bool) -> History {
    History { name: name.into(), is_heir, is_primary: true }
}

fn quarantine(restart: GuardTime, failover: GuardTime) -> Quarantine {
    Quarantine::new(
        &Settings { restart_guard: restart, failover_guard: failover, ..Settings::default() },
        "cache:6379/0".into(),
    )
}

#[test]
fn a_restart_that_was_seen_keeps_grants_back_for_the_longest_ttl_since_the_start() {
    let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Auto, GuardTime::Auto));
    clock.advance(SECOND * 1000);
    quarantine.rules.asks_for(SECOND * 7);
    quarantine.rules.asks_for(SECOND);
    quarantine.met(seen("a", 500, false), clock.now());
    quarantine.check(|| clock.now()).unwrap();
    clock.advance(SECOND * 10);
    quarantine.met(seen("b", 3, false), clock.now());
    assert!(quarantine.check(|| clock.now()).unwrap_err().is_retryable());
    clock.advance(SECOND * 4);
    // Its third second may have been over just after the second one.
    quarantine.check(|| clock.now()).unwrap_err();
    clock.advance(SECOND);
    quarantine.check(|| clock.now()).unwrap();
    // The same one again is nothing new.
    quarantine.met(seen("b", 7, false), clock.now());
    quarantine.check(|| clock.now()).unwrap();
}

#[test]
fn the_request_at_hand_counts_for_the_length_of_the_guard() {
    for other in [seen("b", 0, false), seen("b", 800, true)] {
        let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Auto, GuardTime::Auto));
        clock.advance(SECOND * 1000);
        quarantine.met(seen("a", 500, false), clock.now());
        quarantine.rules.asks_for(SECOND);
        quarantine.met(other, clock.now());
        clock.advance(SECOND * 3);
        quarantine.check(|| clock.now()).unwrap();
        quarantine.rules.asks_for(SECOND * 12);
        quarantine.check(|| clock.now()).unwrap_err();
        clock.advance(SECOND * 9);
        quarantine.check(|| clock.now()).unwrap();
    }
}

#[test]
fn a_restart_is_one_although_the_end_before_it_was_noticed_after_it() {
    for (restart, free) in [(GuardTime::For(SECOND * 5), false), (GuardTime::Off, true)] {
        let (clock, quarantine) = (Clock::manual(), quarantine(restart, GuardTime::Off));
        clock.advance(SECOND * 1000);
        quarantine.met(seen("a", 500, false), clock.now());
        clock.advance(SECOND * 10);
        quarantine.ended(clock.now());
        quarantine.met(seen("b", 2, false), clock.now());
        assert_eq!(quarantine.check(|| clock.now()).is_ok(), free);
    }
}

#[test]
fn another_server_is_told_from_a_restart_by_when_the_connection_ended() {
    for (uptime, free) in [(500, false), (1, true)] {
        let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Off, GuardTime::For(SECOND * 5)));
        clock.advance(SECOND * 1000);
        quarantine.met(seen("a", 500, false), clock.now());
        clock.advance(SECOND * 900);
        quarantine.ended(clock.now());
        clock.advance(SECOND * 2);
        quarantine.met(seen("b", uptime, false), clock.now());
        assert_eq!(quarantine.check(|| clock.now()).is_ok(), free, "{uptime}");
    }
}

#[test]
fn another_server_that_ran_before_counts_from_now() {
    let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Off, GuardTime::For(SECOND * 5)));
    clock.advance(SECOND * 1000);
    quarantine.met(seen("a", 500, true), clock.now());
    quarantine.met(seen("b", 400, true), clock.now());
    clock.advance(SECOND * 4);
    quarantine.check(|| clock.now()).unwrap_err();
    clock.advance(SECOND);
    quarantine.check(|| clock.now()).unwrap();
}

#[test]
fn a_server_that_was_promoted_since_it_was_seen_counts_from_now() {
    // Of the same run, and of a restart long ago; without a predecessor, only its first replica has come.
    for (run_id, uptime, is_heir, free) in
        [("a", 500, true, false), ("b", 100, true, false), ("a", 500, false, true), ("b", 100, false, true)]
    {
        let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Auto, GuardTime::For(SECOND * 5)));
        quarantine.rules.asks_for(SECOND * 50);
        clock.advance(SECOND * 1000);
        quarantine.met(seen("a", 500, true), clock.now());
        clock.advance(SECOND * 400);
        let promoted = || ServerDescription { history: history("other", is_heir), ..seen(run_id, uptime, true) };
        quarantine.met(promoted(), clock.now());
        assert_eq!(quarantine.check(|| clock.now()).is_ok(), free, "{run_id} {is_heir}");
        clock.advance(SECOND * 5);
        quarantine.met(promoted(), clock.now());
        quarantine.check(|| clock.now()).unwrap();
    }
}

#[test]
fn a_promotion_that_is_heard_of_over_an_open_connection_counts_once() {
    let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Off, GuardTime::For(SECOND * 5)));
    clock.advance(SECOND * 1000);
    quarantine.met(seen("a", 500, true), clock.now());
    // Its first replica has come.
    quarantine.heard(history("b", false), clock.now());
    quarantine.check(|| clock.now()).unwrap();
    for free in [false, true] {
        quarantine.heard(history("c", true), clock.now());
        assert_eq!(quarantine.check(|| clock.now()).is_ok(), free);
        clock.advance(SECOND * 5);
    }
}

#[test]
fn a_primary_that_starts_from_its_snapshot_is_guarded_as_restarted_at_least() {
    let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::For(SECOND * 5), GuardTime::Off));
    clock.advance(SECOND * 1000);
    quarantine.met(seen("a", 500, false), clock.now());
    clock.advance(SECOND * 10);
    quarantine.met(ServerDescription { history: history("b", true), ..seen("b", 1, false) }, clock.now());
    quarantine.check(|| clock.now()).unwrap_err();
}

#[test]
fn what_is_on_disk_is_not_forgotten_and_a_young_server_is_suspect_by_name_only() {
    let clock = Clock::manual();
    clock.advance(SECOND * 1000);
    for (restart, first, then, free) in [
        (GuardTime::Auto, seen("a", 1, false), None, true),
        (GuardTime::For(SECOND * 5), seen("a", 1, false), None, false),
        (GuardTime::For(SECOND * 5), seen("a", 1, true), None, true),
        (GuardTime::For(SECOND * 5), seen("a", 9, false), None, true),
        (GuardTime::For(SECOND * 5), seen("a", 9, false), Some(seen("b", 0, true)), true),
        (GuardTime::For(SECOND * 5), seen("a", 9, false), Some(seen("b", 0, false)), false),
    ] {
        let quarantine = quarantine(restart, GuardTime::Off);
        quarantine.met(first, clock.now());
        if let Some(then) = then {
            quarantine.met(then, clock.now());
        }
        assert_eq!(quarantine.check(|| clock.now()).is_ok(), free, "{restart:?}");
    }
}

#[test]
fn a_guard_says_when_it_begins_and_when_it_is_over_and_each_once() {
    let log = dlock_testkit::Log::default();
    let writer = log.clone();
    let lines_to_log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _logs = lines_to_log.set_default();
    let (clock, quarantine) = (Clock::manual(), quarantine(GuardTime::Auto, GuardTime::Auto));
    let lines = || log.text().lines().count();
    clock.advance(SECOND * 1000);
    quarantine.rules.asks_for(SECOND * 7);
    quarantine.met(seen("a", 500, false), clock.now());
    quarantine.check(|| clock.now()).unwrap();
    assert_eq!(lines(), 0, "{}", log.text());
    clock.advance(SECOND * 10);
    for run_id in ["b", "c"] {
        quarantine.met(seen(run_id, 0, false), clock.now());
        (0..3).for_each(|_| drop(quarantine.check(|| clock.now()).unwrap_err()));
    }
    let begin = log.text();
    assert!(
        lines() == 1 && begin.contains("it grants no new lock for this time") && begin.contains("cache:6379/0"),
        "{begin}"
    );
    clock.advance(SECOND * 9);
    (0..3).for_each(|_| quarantine.check(|| clock.now()).unwrap());
    let end = log.text();
    assert!(lines() == 2 && end.contains("Redis grants locks again"), "{end}");
    // A longer ttl may begin it anew, without news from the server.
    quarantine.rules.asks_for(SECOND * 30);
    quarantine.check(|| clock.now()).unwrap_err();
    assert_eq!(lines(), 3, "{}", log.text());
}
