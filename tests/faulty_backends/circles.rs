//! The reference store finds waiters that wait for each other's locks. The one that closes the circle gives way.

use std::collections::VecDeque;

use dlock::HoldId;
use dlock_contract::Claim;

use crate::lies::Lie;
use crate::line::Place;
use crate::server::{News, Server, State};

impl Server {
    /// Tells a waiter to give way if it has just closed a circle.
    pub(crate) fn gives_way(&self, state: &mut State, claim: &Claim) {
        let is_first = !claim.inside().is_empty() && !std::mem::replace(&mut state.has_nested, true);
        let closes = self.closes_circle(state, claim) && !self.tells(Lie::SeesNoCircle);
        if !(closes || is_first && self.tells(Lie::NestedIsCircle)) {
            return;
        }
        let gives_way = |place: &Place| place.claim.owner == claim.owner || self.tells(Lie::BothGiveWay);
        for (name, line) in &mut state.lines {
            let (told, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(line).into_iter().partition(gives_way);
            *line = rest;
            for place in told {
                let _ = place.news.map(|news| news.send(News::GiveWay));
                if self.tells(Lie::GivenWayStays) {
                    state.traces.push((name.clone(), "one that gave way".into()));
                }
            }
        }
    }

    /// Goes from the lock that a call wants to its holders, and from them to the locks that their calls want.
    fn closes_circle(&self, state: &State, claim: &Claim) -> bool {
        let mut wanted = vec![self.name(&claim.key)];
        let mut seen = Vec::new();
        while let Some(name) = wanted.pop() {
            for record in state.records(&name) {
                let hold = HoldId::of(&record.owner);
                if claim.inside().contains(&hold) {
                    return true;
                }
                if !seen.contains(&hold) {
                    seen.push(hold);
                    let waiting =
                        state.lines.iter().flat_map(|(name, line)| line.iter().map(move |place| (name, place)));
                    let its = waiting.filter(|(_, place)| place.claim.inside().contains(&hold));
                    wanted.extend(its.map(|(name, _)| name.clone()));
                }
            }
        }
        false
    }
}
