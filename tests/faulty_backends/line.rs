//! The line of the reference store: who waits, and who is told.

use std::collections::VecDeque;
use std::sync::Arc;

use dlock::Mode;
use dlock_contract::{BootInstant, Claim, Owner, Queue, WakeStyle};
use tokio::sync::oneshot;

use crate::lies::Lie;
use crate::server::{Answer, Grant, News, Server, State};

/// A place in line. It ends with the wait that it was taken for.
pub(crate) struct Place {
    pub(crate) claim: Arc<Claim>,
    pub(crate) client: u64,
    pub(crate) until: BootInstant,
    pub(crate) news: Option<oneshot::Sender<News>>,
}

impl Server {
    fn in_line(&self) -> bool {
        !matches!(self.setup.wake, WakeStyle::Poll { .. })
    }

    pub(crate) fn refuse(
        &self,
        state: &mut State,
        name: &str,
        claim: &Arc<Claim>,
        queue: Queue,
        client: u64,
        now: BootInstant,
    ) -> Answer {
        state.refused.insert(client);
        let ends = state.records(name).iter().map(|record| record.until);
        // Who wants to be alone needs the last of them to end.
        let ends = if claim.mode.is_shared() { ends.min() } else { ends.max() };
        let line = state.lines.entry(name.to_owned()).or_default();
        // Free, but a waiter was notified. Its place ends with its wait at the latest.
        let ask_by = ends.unwrap_or_else(|| line.front().map_or(now, |first| first.until));
        let mut news = None;
        match queue {
            // An answer about a period would not stay true until the next grant.
            Queue::Join { until, .. } if self.in_line() && claim.once_per.is_none() => {
                let (sender, receiver) = oneshot::channel();
                news = Some(receiver);
                match line.iter_mut().find(|place| place.claim.owner == claim.owner) {
                    Some(place) => place.news = Some(sender),
                    None => {
                        let until = if self.tells(Lie::DeadWaiterStays) { BootInstant::NEVER } else { until };
                        line.push_back(Place { claim: claim.clone(), client, until, news: Some(sender) });
                    }
                }
            }
            Queue::Leave if self.tells(Lie::LeavesPlace) => {
                state.traces.push((name.to_owned(), "an attempt".into()));
            }
            _ => {}
        }
        if news.is_some() {
            self.gives_way(state, claim);
        }
        Answer::Refused { left: ask_by.since(now), ask_by, news }
    }

    /// Whether this waiter is the first.
    pub(crate) fn is_next(&self, state: &mut State, name: &str, claim: &Claim) -> bool {
        if claim.mode == Mode::Read && self.tells(Lie::ReadersOvertake) {
            return true;
        }
        let head = state.lines.get_mut(name).and_then(|line| self.head(line));
        head.is_none_or(|head| head.claim.owner == claim.owner)
    }

    /// If there is room, the first waiter gets the lock or is notified.
    pub(crate) fn freed(&self, state: &mut State, name: &str, wall: u64) {
        let now = self.now(wall);
        if self.tells(Lie::NoNews) {
            return;
        }
        loop {
            let Some(line) = state.lines.get_mut(name) else { return };
            line.retain(|place| place.until > now);
            let Some(mode) = self.head(line).map(|head| head.claim.mode) else { return };
            if !self.admits(state, name, mode) {
                return;
            }
            let Some(line) = state.lines.get_mut(name) else { return };
            if self.setup.wake != WakeStyle::Grant {
                if let Some(news) = self.head(line).and_then(|head| head.news.take()) {
                    let _ = news.send(News::Ask);
                }
                return;
            }
            let first = if self.tells(Lie::LastInFirstOut) { line.pop_back() } else { line.pop_front() };
            let Some(Place { claim, client, news, .. }) = first else { return };
            let grant = self.grant(state, name, &claim, client, wall);
            let less = u64::from(self.tells(Lie::HandsOverOldToken));
            if let Some(record) = state.locks.get_mut(name).and_then(|records| records.last_mut()) {
                record.pushed = true;
                record.token -= less;
            }
            self.cut(Lie::HandsOverShort, state, name, &claim.owner, claim.ttl);
            let grant = Grant { token: grant.token - less, ..grant };
            let _ = news.map(|news| news.send(News::Granted { grant, at: now }));
        }
    }

    fn head<'a>(&self, line: &'a mut VecDeque<Place>) -> Option<&'a mut Place> {
        if self.tells(Lie::LastInFirstOut) { line.back_mut() } else { line.front_mut() }
    }

    pub(crate) fn leave(&self, state: &mut State, name: &str, owner: &Owner) -> bool {
        let Some(line) = state.lines.get_mut(name) else { return false };
        let before = line.len();
        line.retain(|place| place.claim.owner != *owner);
        line.len() < before
    }
}
