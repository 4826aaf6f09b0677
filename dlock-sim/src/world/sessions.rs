//! The sessions of the processes with the store: signs of life, their ends, and who hears of these.

use std::time::Duration;

use tokio::sync::oneshot;

use super::World;
use super::network::Fate;
use crate::history::What;
use crate::store::{Ended, nanos};

/// A client that has not heard of the end of its session looks for it this often.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// A lock that is lost is free within this time, if nothing goes wrong: the release is on its way at once.
const FREED_WITHIN: Duration = Duration::from_secs(12);

/// The leftovers of a call that is not polled are undone within this time: two looks 5 s apart, of which the first one finds a call that
/// acts within 7 s, and the request.
const UNDONE_WITHIN: Duration = Duration::from_secs(25);

/// The longest pause of the engine between two hints.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The news of one session in its process.
#[derive(Default)]
pub(super) struct SessionNews {
    /// Whether the process knows that it has ended.
    has_ended: bool,
    /// Whether it was hinted before, and was alive.
    was_hinted: bool,
    listeners: Vec<oneshot::Sender<()>>,
}

impl World {
    /// From now on a process gives signs of life, as long as it runs and the network lets them through.
    pub(crate) fn begins_to_live(&mut self, process: u32, ttl: Duration) {
        self.later(nanos(ttl / 3), 0, move |world| {
            world.gives_sign(process, ttl);
            world.begins_to_live(process, ttl);
        });
    }

    fn gives_sign(&mut self, process: u32, ttl: Duration) {
        let stands = self.stands_until.get(&process).is_some_and(|until| *until > self.now);
        let is_lost = matches!(self.fate(), Fate::Lost | Fate::Refused) || self.is_cut(process).0;
        self.store.close_unused_sessions();
        if stands || is_lost || self.store.down_until > self.now || self.closed.contains(&process) {
            return;
        }
        for ended in self.store.hears_of(process, self.now, self.now + nanos(ttl)) {
            self.end_session(process, ended);
        }
    }

    /// The process has closed its sessions: they end when the server has not heard of them for their ttl.
    pub(crate) fn closes_sessions(&mut self, process: u32) {
        self.closed.insert(process);
    }

    /// An operator ends the sessions of a process.
    pub(crate) fn end_sessions(&mut self, process: u32) {
        if !self.is_calm() {
            self.add(0, 0, What::Note(format!("an operator ends the sessions of process {process}")));
            for session in self.store.sessions_of(process) {
                self.end_session(process, session);
            }
        }
    }

    /// The server ends a session, frees its locks, and tells the process.
    pub(super) fn end_session(&mut self, process: u32, session: u64) {
        let (ended, listeners) = self.store.end_session(session, self.now);
        for Ended { key, from, to } in &ended {
            self.add(0, 0, What::Forgets { key: Some(*key), from: *from, to: *to });
        }
        self.tell(listeners);
        for key in self.store.keys() {
            self.serve(key);
        }
        self.tell_end(process, session, ended);
    }

    fn tell_end(&mut self, process: u32, session: u64, ended: Vec<Ended>) {
        let (fate, way) = (self.fate(), self.latency());
        if matches!(fate, Fate::Lost | Fate::AnswerLost | Fate::Refused) || self.is_cut(process).1 {
            return self.later(nanos(LOOKS_EVERY), 0, move |world| world.tell_end(process, session, ended));
        }
        self.later(way, process, move |world| {
            let news = world.session_news.entry(session).or_default();
            news.has_ended = true;
            let pause = if news.was_hinted { LONGEST_PAUSE } else { Duration::ZERO };
            news.listeners.clear();
            for Ended { key, from, to } in ended {
                world.add(0, 0, What::EndIsTold { key, from, to, by: world.now + nanos(pause) });
            }
        });
    }

    /// A process has lost these holds. Their locks must be free soon, whether their bodies run on or not, since the session may live for
    /// very long.
    pub(crate) fn looks_whether_freed(&mut self, process: u32, holds: Vec<(u32, u64)>) {
        if self.network.faults() > 0 {
            return;
        }
        let before = self.hindered;
        self.later(nanos(FREED_WITHIN), 0, move |world| {
            let is_hindered = world.hindered > before || world.leaving.contains(&process);
            for (key, token) in holds.into_iter().filter(|_| !is_hindered) {
                if world.store.has(key, token, world.now) {
                    world.add(
                        process,
                        0,
                        What::Left(format!("the lock of key {key}, token {token}, was lost long ago")),
                    );
                }
            }
        });
    }

    /// These calls are not polled, and have no bodies now: what they have in the store is undone soon, although their process lives.
    pub(crate) fn looks_whether_undone(&mut self, process: u32, calls: Vec<u32>) {
        if self.network.faults() > 0 {
            return;
        }
        let before = self.hindered;
        self.later(nanos(UNDONE_WITHIN), 0, move |world| {
            let is_hindered = world.hindered > before || world.leaving.contains(&process);
            for call in calls.into_iter().filter(|_| !is_hindered) {
                // The locks of a call for several keys are held, as those of a body are, while it waits for the last of them.
                if !world.several.contains(&call) && world.store.has_call(call, world.now) {
                    world.add(process, call, What::Left("a lock of a call that was not polled for long".into()));
                }
            }
        });
    }

    /// The connections of a process break, and its sessions may have ended. They have not.
    pub(crate) fn hints(&mut self, process: u32) {
        self.add(0, 0, What::Note(format!("the sessions of process {process} may have ended")));
        for session in self.store.sessions_of(process) {
            let news = self.session_news.entry(session).or_default();
            news.was_hinted = true;
            news.listeners.clear();
        }
        // The processes hear of it at once.
        self.later(0, process, |_| {});
    }

    pub(crate) fn has_ended(&self, session: u64) -> bool {
        self.session_news.get(&session).is_some_and(|news| news.has_ended)
    }

    /// Ends, by an error, when the session may have ended.
    pub(crate) fn listen_to(&mut self, session: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let news = self.session_news.entry(session).or_default();
        if !news.has_ended {
            news.listeners.push(sender);
        }
        receiver
    }
}
