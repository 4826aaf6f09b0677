//! What can be seen of the reference store.

use dlock::{Clock, LockKey, Owner};

use crate::lies::Lie;
use crate::server::Server;

impl Server {
    pub(crate) fn note(&self, key: &LockKey, wall: u64) -> Option<String> {
        let (name, now) = (self.name(key), self.now(wall));
        let state = self.state();
        let mut held = state.records(&name).iter().filter(|record| record.until > now);
        let record = if self.tells(Lie::TellsLatest) { held.next_back() } else { held.next() };
        let record = record.filter(|record| !(record.kept && self.tells(Lie::KeptIsNobodys)));
        let told = record.map(|record| match self.lie() {
            Some(Lie::OwnerInNote) => format!("{} o={}", record.note, record.owner.to_hex()),
            Some(Lie::CutsNotes) => record.note.chars().take(200).collect(),
            _ => record.note.clone(),
        });
        told.or_else(|| state.notes.get(&name).filter(|_| self.tells(Lie::NoteStays)).cloned())
    }

    pub(crate) fn leftovers(&self, key: &LockKey) -> Vec<String> {
        let (name, now) = (self.name(key), Clock::system().now());
        let state = self.state();
        let held = state.records(&name).iter().filter(|record| record.until > now).map(|_| "a lock".to_owned());
        let places = state.lines.get(&name).into_iter().flatten().map(|_| "a place in line".to_owned());
        let traces = state.traces.iter().filter(|(key, _)| *key == name).map(|(_, text)| format!("a trace of {text}"));
        held.chain(places).chain(traces).collect()
    }

    /// Whose the key is, as somebody who listens would know.
    pub(crate) fn holder(&self, name: &str) -> Option<Owner> {
        self.state().records(name).first().map(|record| record.owner)
    }

    /// Was the key's last change a release?
    pub(crate) fn was_released(&self, name: &str) -> bool {
        self.state().released_by.contains_key(name)
    }
}
