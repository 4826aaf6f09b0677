//! Slots on their way: what the server has forgotten to which they come.
//!
//! While a slot moves, its new server grants what the old one does not have (`ASK`). So it is asked who it is, in the same
//! request as for the lock. What it has forgotten lately concerns the slots that come to it as much as its own, also those
//! that come after that was found.

use ::redis::Value;

use super::check::text;
use super::guards::{Guards, Life, QUESTIONS, Seen};
use super::shards::{Met, Shards, State};
use crate::clock::BootInstant;

impl Shards {
    /// What the server to which a slot is moving is asked beside a lock of that slot.
    pub(super) fn questions_beside() -> impl Iterator<Item = &'static [&'static str]> {
        std::iter::once(&["CLUSTER", "MYID"][..]).chain(QUESTIONS)
    }

    /// Notes its answers. They are of the very run that has heard the lock's request.
    pub(super) fn asked_beside(&self, guards: &Guards, slot: u16, answers: &[Value], now: BootInstant) {
        let [id, about @ ..] = answers else { return };
        let Some((id, seen)) = text(id).zip(Seen::read(about)) else { return };
        let mut state = self.state();
        let number = state.number(id.to_owned());
        let (found, lately) = state.live(guards, number, seen, now, true);
        let own = if found.is_some() { state.slots_of(number) } else { Vec::new() };
        let mut forgotten: Vec<_> = found.iter().flat_map(|until| own.iter().map(|slot| (*slot, *until))).collect();
        forgotten.extend(lately.map(|until| (slot, until)));
        state.hold_back(forgotten, now);
    }
}

impl State {
    pub(super) fn slots_of(&self, server: u32) -> Vec<u16> {
        (0..).zip(&self.owners).filter(|(_, owner)| **owner == Some(server)).map(|(slot, _)| slot).collect()
    }

    /// Notes how a server lives; until when its slots wait for what is new of that, and until when those that come to it.
    pub(super) fn live(
        &mut self,
        guards: &Guards,
        number: u32,
        seen: Seen,
        now: BootInstant,
        comes: bool,
    ) -> (Option<BootInstant>, Option<BootInstant>) {
        let before = self.met.remove(&number);
        let found = guards.judged_alone(before.as_ref().map(|met| &met.life), &seen, now);
        let lately = match &before {
            Some(met) => met.suspect_until.filter(|until| *until > now),
            None if comes => guards.after_arrival(&seen, now),
            None => None,
        };
        let suspect_until = found.max(lately);
        let evicts = guards.refuses(&seen, before.as_ref().is_some_and(|met| met.evicts));
        let life = Life { run_id: seen.run_id, history: seen.history, met: now };
        self.met.insert(number, Met { life, changes: before.map_or(0, |met| met.changes), suspect_until, evicts });
        (found, suspect_until)
    }

    pub(super) fn hold_back(&mut self, slots: Vec<(u16, BootInstant)>, now: BootInstant) {
        self.until.retain(|_, until| *until > now);
        let mut news = 0;
        for (slot, until) in &slots {
            let known = self.until.entry(*slot).or_insert(now);
            news += usize::from(*known < *until);
            *known = (*until).max(*known);
        }
        if let Some(wait) = slots.iter().map(|(_, until)| until.since(now)).max().filter(|_| news > 0) {
            tracing::warn!(
                slots = news,
                ?wait,
                "a server of the Redis Cluster may have forgotten locks; nothing is granted meanwhile"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::shards::tests::Cluster;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_a_server_has_forgotten_concerns_the_slots_that_come_to_it() {
        let answer = |text: String| Value::BulkString(text.into_bytes());
        let asked = |cluster: &Cluster, slot, id: &str, run_id: &str, uptime: u64| {
            let server = answer(format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n"));
            let answers = [answer(id.into()), server, Value::Nil, Value::Nil, Value::Nil];
            cluster.guards.shards.asked_beside(&cluster.guards, slot, &answers, cluster.clock.now());
        };
        let before = [(99, "a"), (16_383, "b")];
        let after = [(98, "a"), (16_383, "b")];
        for was_asked in [true, false] {
            let cluster = Cluster::new();
            cluster.tells(&before, "a", "1", 2, false);
            cluster.tells(&before, "b", "1", 2, false);
            asked(&cluster, 99, "b", "1", 2);
            assert!(cluster.grants(99), "a known one is not suspect for being young");
            if was_asked {
                asked(&cluster, 99, "b", "2", 1);
                assert!(!cluster.grants(99) && !cluster.grants(100) && cluster.grants(98));
            } else {
                cluster.tells(&before, "b", "2", 1, false);
                assert!(cluster.grants(99) && !cluster.grants(100));
                asked(&cluster, 98, "b", "2", 1);
                assert!(!cluster.grants(98), "noted before, by another slot");
            }
            cluster.tells(&after, "a", "1", 2, false);
            assert!(!cluster.guards.shards.knows(99), "its new server is looked at");
            cluster.tells(&after, "b", "2", 1, false);
            assert!(cluster.guards.shards.knows(99) && !cluster.grants(99) && cluster.grants(0));
            cluster.clock.advance(SECOND * 7);
            assert!(cluster.grants(98) && cluster.grants(99) && cluster.grants(100));
        }
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
}
