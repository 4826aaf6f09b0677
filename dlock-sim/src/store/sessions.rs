//! The sessions in which holds live, where they do: one for each process, or one for each hold.

use std::collections::BTreeMap;

use dlock_contract::Mode;
use tokio::sync::oneshot;

use super::{HoldOf, Holder, Lock, Store};
use crate::plan::Lives;

#[derive(Default)]
pub(super) struct Sessions {
    lives: Lives,
    last: u64,
    alive: BTreeMap<u64, Session>,
}

struct Session {
    process: u32,
    /// The server ends it then, unless it hears of it.
    expires: u64,
}

/// The holds of one key that the end of a session has ended: those with these tokens.
pub(crate) struct Ended {
    pub(crate) key: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Sessions {
    pub(super) fn new(lives: Lives) -> Self {
        Self { lives, ..Self::default() }
    }

    /// The session for a new hold, which lives until this time at least.
    pub(super) fn of(&mut self, hold: HoldOf, now: u64, expires: u64) -> Option<u64> {
        let is_of_process = |session: &Session| session.process == hold.process && session.expires > now;
        let number = match self.lives {
            Lives::Alone => return None,
            Lives::InSharedSession => {
                self.alive.iter().find(|(_, session)| is_of_process(session)).map(|(number, _)| *number)
            }
            Lives::InOwnSession => None,
        };
        let number = number.unwrap_or_else(|| {
            self.last += 1;
            self.alive.insert(self.last, Session { process: hold.process, expires });
            self.last
        });
        self.prolong(Some(number), expires);
        Some(number)
    }

    pub(super) fn prolong(&mut self, session: Option<u64>, expires: u64) {
        if let Some(session) = session.and_then(|number| self.alive.get_mut(&number)) {
            session.expires = session.expires.max(expires);
        }
    }

    /// When a hold ends, unless it is prolonged.
    pub(super) fn end_of(&self, holder: &Holder) -> u64 {
        match holder.session {
            None => holder.expires,
            Some(number) => self.alive.get(&number).map_or(0, |session| session.expires),
        }
    }

    /// With their processes.
    pub(super) fn that_end_with_the_server(&self, forgets: bool) -> Vec<(u32, u64)> {
        match self.lives {
            Lives::InSharedSession if !forgets => Vec::new(),
            _ => self.alive.iter().map(|(number, session)| (session.process, *number)).collect(),
        }
    }
}

impl Store {
    /// The server has heard of a process: its sessions live on. Returns those that have ended before.
    pub(crate) fn hears_of(&mut self, process: u32, now: u64, expires: u64) -> Vec<u64> {
        let mut ended = Vec::new();
        for (number, session) in self.sessions.alive.iter_mut().filter(|(_, session)| session.process == process) {
            if session.expires <= now {
                ended.push(*number);
            } else {
                session.expires = session.expires.max(expires);
            }
        }
        ended
    }

    /// The sessions of a process.
    pub(crate) fn sessions_of(&self, process: u32) -> Vec<u64> {
        let own = self.sessions.alive.iter().filter(|(_, session)| session.process == process);
        own.map(|(number, _)| *number).collect()
    }

    /// Ends a session, and frees its locks. Returns the holds that it has ended before their time.
    pub(crate) fn end_session(&mut self, number: u64, now: u64) -> (Vec<Ended>, Vec<oneshot::Sender<()>>) {
        let Some(session) = self.sessions.alive.remove(&number) else { return (Vec::new(), Vec::new()) };
        let (mut ended, mut listeners) = (Vec::new(), Vec::new());
        for (key, Lock { holders, last_token, listeners: of_lock, .. }) in &mut self.locks {
            for holder in holders.extract_if(.., |holder| holder.session == Some(number)) {
                listeners.append(of_lock);
                if session.expires > now {
                    // Tokens that were reserved for this hold are at most the last token of the key.
                    let to = if holder.mode == Mode::Exclusive { *last_token } else { holder.token };
                    ended.push(Ended { key: *key, from: holder.token, to });
                }
            }
        }
        (ended, listeners)
    }

    /// Removes the sessions without a hold, whose clients have closed them.
    pub(crate) fn close_unused_sessions(&mut self) {
        let Self { locks, sessions, .. } = self;
        let is_used =
            |number: u64| locks.values().any(|lock| lock.holders.iter().any(|holder| holder.session == Some(number)));
        sessions.alive.retain(|number, _| is_used(*number));
    }
}
