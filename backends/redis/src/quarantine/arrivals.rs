//! Slots that move to another server, which may have forgotten locks.
//!
//! While a slot moves, its new server grants what the old one does not have (`ASK`). So it is asked for its identity in
//! the same request as for the lock. If it has forgotten locks lately, that concerns the slots that come to it as much
//! as its own, also those that come after the loss was found.

use ::redis::Value;
use dlock_contract::BootInstant;

use crate::quarantine::history::{Life, QUESTIONS, Seen};
use crate::quarantine::rules::Rules;
use crate::quarantine::shards::{Met, Shards, State};
use crate::quarantine::suspicion::Suspicion;
use crate::reply::read::text;

impl Shards {
    /// The questions to the server to which a slot moves, sent beside the request for a lock of that slot.
    pub(crate) fn questions_beside() -> impl Iterator<Item = &'static [&'static str]> {
        std::iter::once(&["CLUSTER", "MYID"][..]).chain(QUESTIONS)
    }

    /// Notes that server's answers. They come from the same run of the server as the answer to the lock's request.
    pub(crate) fn asked_beside(&self, rules: &Rules, slot: u16, answers: &[Value], now: BootInstant) {
        let [id, about @ ..] = answers else { return };
        let Some((id, seen)) = text(id).zip(Seen::read(about)) else { return };
        let mut state = self.state();
        let number = state.number(id.to_owned());
        let (found, lately) = state.live(rules, number, seen, now, true);
        let own = if found.is_none() { Vec::new() } else { state.slots_of(number) };
        let mut forgotten: Vec<_> = own.into_iter().map(|slot| (slot, found)).collect();
        forgotten.push((slot, lately));
        state.suspect(rules, forgotten, now);
    }
}

impl State {
    pub(crate) fn slots_of(&self, server: u32) -> Vec<u16> {
        (0..).zip(&self.owners).filter(|(_, owner)| **owner == Some(server)).map(|(slot, _)| slot).collect()
    }

    /// Notes the state of a server's life. Returns two suspicions: of its own slots, by what is new since the last
    /// look, and of the slots that come to it.
    pub(crate) fn live(
        &mut self,
        rules: &Rules,
        number: u32,
        seen: Seen,
        now: BootInstant,
        comes: bool,
    ) -> (Suspicion, Suspicion) {
        let before = self.met.remove(&number);
        let found = rules.suspicion_of_same(before.as_ref().map(|met| &met.life), &seen, now);
        let lately = match &before {
            Some(met) => met.suspicion,
            None if comes => rules.after_arrival(&seen, now),
            None => Suspicion::default(),
        };
        let suspicion = found.or(lately);
        let evicts = rules.refuses(&seen, before.as_ref().is_some_and(|met| met.evicts));
        let life = Life { run_id: seen.run_id, history: seen.history.name, met: now };
        self.met.insert(number, Met { life, changes: before.map_or(0, |met| met.changes), suspicion, evicts });
        (found, suspicion)
    }

    pub(crate) fn suspect(&mut self, rules: &Rules, slots: Vec<(u16, Suspicion)>, now: BootInstant) {
        let (mut news, mut longest) = (0, None);
        for (slot, suspicion) in slots.into_iter().filter(|(_, suspicion)| !suspicion.is_none()) {
            let known = self.suspect.entry(slot).or_default();
            let found = known.or(suspicion);
            let until = rules.until(found).filter(|until| *until > now && found != *known);
            (news, longest) = (news + usize::from(until.is_some()), longest.max(until));
            *known = found;
        }
        if let Some(wait) = longest.map(|until: BootInstant| until.since(now)) {
            tracing::warn!(
                slots = news,
                ?wait,
                "a server of the Redis Cluster may have lost locks; it grants none until the earlier ones have ended"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quarantine::shards::tests::Cluster;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_a_server_has_forgotten_concerns_the_slots_that_come_to_it() {
        let answer = |text: String| Value::BulkString(text.into_bytes());
        let asked = |cluster: &Cluster, slot, id: &str, run_id: &str, uptime: u64| {
            let server = answer(format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n"));
            let answers = [answer(id.into()), server, Value::Nil, Value::Nil, Value::Nil];
            cluster.quarantine.shards.asked_beside(&cluster.quarantine.rules, slot, &answers, cluster.clock.now());
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
            assert!(!cluster.quarantine.shards.knows(99), "its new server is looked at");
            cluster.tells(&after, "b", "2", 1, false);
            assert!(cluster.quarantine.shards.knows(99) && !cluster.grants(99) && cluster.grants(0));
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
