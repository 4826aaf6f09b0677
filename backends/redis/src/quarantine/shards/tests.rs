//! Servers of a cluster that restart, fail over, and give each other slots.

use dlock_store::Clock;
use tracing_subscriber::util::SubscriberInitExt;

use super::*;
use crate::quarantine::history::{History, ServerDescription};
use crate::quarantine::server::Quarantine;
use crate::url::settings::{GuardTime, Settings};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct Cluster {
    clock: Clock,
    quarantine: Quarantine,
}

impl Cluster {
    fn new() -> Self {
        Self::with(Settings { restart_guard: GuardTime::Auto, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let quarantine = Quarantine::new(&settings, String::new());
        quarantine.rules.asks_for(SECOND * 7);
        let clock = Clock::manual();
        clock.advance(SECOND * 1000);
        Self { clock, quarantine }
    }

    /// A server reports which server has which slots. Each range is given by its last slot.
    fn tells(&self, ranges: &[(u16, &str)], id: &str, run_id: &str, uptime: u64, durable: bool) {
        self.tells_as(ranges, id, Self::seen(run_id, uptime, durable));
    }

    fn seen(run_id: &str, uptime: u64, durable: bool) -> ServerDescription {
        let uptime = Duration::from_secs(uptime);
        ServerDescription {
            run_id: run_id.into(),
            uptime,
            durable,
            history: Self::history(run_id, false),
            evicts: None,
        }
    }

    fn history(name: &str, is_heir: bool) -> History {
        History { name: name.into(), is_heir, is_primary: true }
    }

    fn tells_as(&self, ranges: &[(u16, &str)], id: &str, seen: ServerDescription) {
        let mut first = 0;
        let ranges = ranges.iter().map(|(last, primary)| {
            let slots = (first, *last);
            first = last + 1;
            Range { slots, primary: (*primary).to_owned(), address: ((*primary).to_owned(), 6379) }
        });
        let view = View { ranges: ranges.collect(), id: id.into(), seen };
        let shards = &self.quarantine.shards;
        shards.met(&self.quarantine.rules, view, shards.changes(), self.clock.now());
    }

    /// The server that the slot is moving to describes itself in the answer to a lock request.
    fn asks_beside(&self, slot: u16, id: &str, run_id: &str, uptime: u64) {
        let answer = |text: String| Value::BulkString(text.into_bytes());
        let server = answer(format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n"));
        let nothing = || Value::Nil;
        let answers = [answer(id.into()), server, nothing(), nothing(), nothing(), nothing()];
        self.quarantine.shards.asked_beside(&self.quarantine.rules, slot, &answers, self.clock.now());
    }

    fn grants(&self, slot: u16) -> bool {
        self.quarantine.shards.check(&self.quarantine.rules, slot, || self.clock.now()).is_ok()
    }
}

#[test]
fn a_restarted_server_keeps_its_own_slots_back() {
    let cluster = Cluster::new();
    let ranges = [(8191, "a"), (16_383, "b")];
    cluster.tells(&ranges, "a", "1", 500, false);
    cluster.tells(&ranges, "b", "1", 500, false);
    cluster.tells(&ranges, "a", "2", 3, false);
    assert!(!cluster.grants(0) && !cluster.grants(8191) && cluster.grants(8192));
    cluster.clock.advance(SECOND * 4);
    assert!(!cluster.grants(0), "its start may have been six seconds ago");
    cluster.clock.advance(SECOND);
    assert!(cluster.grants(0), "its start was seven seconds ago");
    cluster.tells(&ranges, "a", "3", 0, true);
    assert!(cluster.grants(0), "all of it was on disk");
}

#[test]
fn the_request_at_hand_counts_for_the_length_of_the_guard() {
    let cluster = Cluster::new();
    let ranges = [(8191, "a"), (16_383, "b")];
    cluster.tells(&ranges, "a", "1", 500, false);
    cluster.tells(&ranges, "b", "1", 500, false);
    cluster.tells(&ranges, "a", "2", 1, false);
    cluster.clock.advance(SECOND * 8);
    assert!(cluster.grants(0));
    // Like a look that finds nothing new.
    cluster.tells(&ranges, "b", "1", 508, false);
    cluster.quarantine.rules.asks_for(SECOND * 12);
    assert!(!cluster.grants(0) && cluster.grants(8192));
    cluster.clock.advance(SECOND * 4);
    assert!(cluster.grants(0));
}

#[test]
fn slots_that_fail_over_wait_and_slots_that_are_moved_do_not() {
    let cluster = Cluster::new();
    cluster.tells(&[(99, "a"), (199, "b"), (16_383, "c")], "a", "1", 500, false);
    // Slots move from a to b, and both servers live on.
    cluster.tells(&[(49, "a"), (199, "b"), (16_383, "c")], "a", "1", 500, false);
    assert!(cluster.grants(60));
    // The last slots of a go to b, which had slots before. They may have been moved, or given to b after a's end.
    cluster.tells(&[(199, "b"), (16_383, "c")], "b", "1", 500, false);
    assert!(!cluster.grants(0) && !cluster.grants(60) && cluster.grants(200));
    cluster.clock.advance(SECOND * 7);
    assert!(cluster.grants(0) && cluster.grants(60));
    // A replica takes the place of b.
    cluster.tells(&[(199, "r"), (16_383, "c")], "r", "1", 500, true);
    assert!(!cluster.grants(0) && !cluster.grants(199) && cluster.grants(200));
    cluster.clock.advance(SECOND * 7);
    assert!(cluster.grants(0));
}

#[test]
fn a_server_that_was_a_replica_meanwhile_keeps_its_slots_back() {
    let cluster = Cluster::new();
    let ranges = [(8191, "a"), (16_383, "b")];
    cluster.tells(&ranges, "a", "1", 500, true);
    cluster.tells_as(
        &ranges,
        "a",
        ServerDescription { history: Cluster::history("2", true), ..Cluster::seen("1", 500, true) },
    );
    assert!(!cluster.grants(0) && cluster.grants(8192));
    cluster.clock.advance(SECOND * 7);
    assert!(cluster.grants(0));
}

#[test]
fn a_server_is_looked_at_after_every_change() {
    let cluster = Cluster::new();
    let shards = &cluster.quarantine.shards;
    let ranges = [(8191, "a"), (16_383, "b")];
    assert!(!shards.knows(0));
    cluster.tells(&ranges, "a", "1", 500, false);
    assert!(shards.knows(0) && !shards.knows(9000));
    shards.changed();
    assert!(!shards.knows(0));
    cluster.tells(&ranges, "a", "1", 500, false);
    assert!(shards.knows(0));
    shards.cannot_look();
    assert!(shards.knows(9000));
}

#[test]
fn a_failed_request_is_about_its_server_alone() {
    let cluster = Cluster::new();
    let shards = &cluster.quarantine.shards;
    let ranges = [(8191, "a"), (16_383, "b")];
    cluster.tells(&ranges, "a", "1", 500, false);
    cluster.tells(&ranges, "b", "1", 500, false);
    shards.failed(9000);
    assert!(shards.knows(0) && !shards.knows(9000) && !shards.knows(16_383));
    // A request that fails during a look makes that look count for nothing.
    let before = shards.changes();
    shards.failed(9001);
    let seen = Cluster::seen("1", 500, false);
    let view = View { ranges: Vec::new(), id: "b".into(), seen };
    shards.met(&cluster.quarantine.rules, view, before, cluster.clock.now());
    assert!(!shards.knows(9000));
    cluster.tells(&ranges, "b", "1", 500, false);
    assert!(shards.knows(0) && shards.knows(9000));
    shards.changed();
    assert!(!shards.knows(0) && !shards.knows(9000));
}

#[test]
fn locks_that_a_server_may_have_lost_concern_the_server_to_which_its_slots_are_moved() {
    let cluster = Cluster::new();
    let before = [(99, "a"), (199, "b"), (16_383, "c")];
    for id in ["a", "b", "c"] {
        cluster.tells(&before, id, "1", 500, false);
    }
    cluster.tells(&before, "a", "2", 1, false);
    cluster.tells(&[(49, "a"), (199, "b"), (16_383, "c")], "b", "1", 500, false);
    assert!(!cluster.grants(0) && !cluster.grants(60) && cluster.grants(200));
    cluster.clock.advance(SECOND * 7);
    assert!(cluster.grants(0) && cluster.grants(60));
}

#[test]
fn a_slot_waits_for_the_server_to_which_it_is_moving() {
    let before = [(99, "a"), (16_383, "b")];
    for was_asked in [true, false] {
        let cluster = Cluster::new();
        cluster.tells(&before, "a", "1", 2, false);
        cluster.tells(&before, "b", "1", 2, false);
        cluster.asks_beside(99, "b", "1", 2);
        assert!(cluster.grants(99), "a known one is not suspect for being young");
        if was_asked {
            cluster.asks_beside(99, "b", "2", 1);
            assert!(!cluster.grants(99) && !cluster.grants(100) && cluster.grants(98));
        } else {
            cluster.tells(&before, "b", "2", 1, false);
            assert!(!cluster.grants(99) && !cluster.grants(100) && cluster.grants(98));
            cluster.asks_beside(98, "b", "2", 1);
            assert!(!cluster.grants(98), "noted before, by another slot");
        }
        let after = [(98, "a"), (16_383, "b")];
        cluster.tells(&after, "a", "1", 2, false);
        assert!(!cluster.quarantine.shards.knows(99), "its new server is looked at");
        cluster.tells(&after, "b", "2", 1, false);
        assert!(cluster.quarantine.shards.knows(99) && !cluster.grants(99) && cluster.grants(0));
        cluster.clock.advance(SECOND * 7);
        assert!(cluster.grants(98) && cluster.grants(99) && cluster.grants(100));
    }
}

#[test]
fn a_slot_waits_for_a_server_to_which_its_move_was_broken_off() {
    let cluster = Cluster::new();
    let ranges = [(99, "a"), (199, "b"), (16_383, "c")];
    for id in ["a", "b", "c"] {
        cluster.tells(&ranges, id, "1", 500, false);
    }
    cluster.asks_beside(99, "b", "2", 1);
    cluster.asks_beside(99, "c", "1", 500);
    assert!(!cluster.grants(99) && cluster.grants(98) && cluster.grants(200));
}

#[test]
fn a_server_that_nobody_knows_is_judged_by_its_age_when_a_slot_comes() {
    for (uptime, free) in [(500, true), (3, false)] {
        let cluster = Cluster::new();
        cluster.tells(&[(16_383, "a")], "a", "1", 500, false);
        let after = [(0, "new"), (16_383, "a")];
        cluster.tells(&after, "a", "1", 500, false);
        cluster.tells(&after, "new", "1", uptime, false);
        assert_eq!(cluster.grants(0), free);
        assert!(cluster.grants(1));
    }
}

#[test]
fn a_young_replica_that_takes_over_counts_as_failed_over_and_not_as_restarted() {
    for (failover_guard, free) in [(GuardTime::Auto, false), (GuardTime::Off, true)] {
        let cluster = Cluster::with(Settings { failover_guard, ..Settings::default() });
        cluster.tells(&[(99, "a"), (16_383, "b")], "a", "1", 500, false);
        cluster.tells(&[(99, "r"), (16_383, "b")], "r", "1", 3, false);
        assert_eq!(cluster.grants(0), free);
    }
}

#[test]
fn the_guard_of_each_server_says_when_it_begins_and_when_it_is_over() {
    let log = dlock_testkit::Log::default();
    let writer = log.clone();
    let lines_to_log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _logs = lines_to_log.set_default();
    let cluster = Cluster::new();
    let ranges = [(8191, "a"), (16_383, "b")];
    cluster.tells(&ranges, "a", "first", 500, false);
    cluster.tells(&ranges, "b", "other", 500, false);
    cluster.clock.advance(SECOND * 10);
    cluster.tells(&ranges, "a", "second", 0, false);
    assert!(!cluster.grants(0) && cluster.grants(9000));
    cluster.clock.advance(SECOND * 9);
    (0..3).for_each(|_| assert!(cluster.grants(0) && cluster.grants(9000)));
    let text = log.text();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("host=\"a:6379\"")), "{text}");
    assert!(lines[0].contains("grants none") && lines[1].contains("grants locks again"), "{text}");
}
