//! The reference store: `look`, leftovers and notes.

use dlock::{Clock, Cursor, HoldId, Holder, LockKey, LockState, Note, Result};
use dlock_contract::{BreakRecord, Listing, Owner, Page};

use crate::lies::Lie;
use crate::server::{Record, Server};

impl Server {
    pub(crate) fn look(&self, key: &LockKey, wall: u64) -> LockState {
        let (name, now) = (self.name(key), self.now(wall));
        let state = self.state();
        let told = |record: &Record| {
            let note = match self.lie() {
                Some(Lie::OwnerInNote) => format!("{} o={}", record.note, record.owner.to_hex()),
                Some(Lie::CutsNotes) => record.note.chars().take(200).collect(),
                _ => record.note.clone(),
            };
            Holder::new(Note::from_stored(&note)).with(|holder| {
                let owner = if self.tells(Lie::WrongHoldIds) { Owner::from_bytes([7; 16]) } else { record.owner };
                holder.id = Some(HoldId::of(&owner)).filter(|_| !record.kept);
                holder.token = Some(record.token);
                holder.lease_left = Some(record.until.since(now));
                holder.slot = record.slot;
            })
        };
        let held = state.records(&name).iter().filter(|record| record.until > now);
        let held = held.filter(|record| !(record.kept && self.tells(Lie::KeptIsNobodys)));
        let mut holders: Vec<_> = held.map(told).collect();
        if self.tells(Lie::TellsLatest) {
            holders.reverse();
        }
        if let (true, Some(note)) = (holders.is_empty() && self.tells(Lie::NoteStays), state.notes.get(&name)) {
            holders.push(Holder::new(Note::from_stored(note)));
        }
        LockState::new(holders, None)
    }

    pub(crate) fn waiters(&self, key: &LockKey, limit: usize, wall: u64) -> Vec<Note> {
        let (name, now) = (self.name(key), self.now(wall));
        let state = self.state();
        let places = state.lines.get(&name).into_iter().flatten().filter(|place| place.until > now);
        let mut notes: Vec<_> = places.map(|place| place.claim.note.clone()).collect();
        if self.tells(Lie::NamesLatestWaiterFirst) {
            notes.reverse();
        }
        notes.truncate(limit);
        notes
    }

    pub(crate) fn list(&self, listing: &Listing, wall: u64) -> Result<Page> {
        let (mut prefix, now) = (listing.name_prefix()?, self.now(wall));
        if self.tells(Lie::ListsByPattern) {
            prefix = prefix.trim_end_matches('*').to_owned();
        }
        let state = self.state();
        let after = listing.after.as_ref().map_or("", Cursor::as_str);
        let is_held = |name: &String| state.records(name).iter().any(|record| record.until > now);
        let held = state.locks.keys().filter(|name| is_held(name));
        let released = state.fences.keys().filter(|_| self.tells(Lie::ListsReleased));
        let mut names: Vec<_> = held.chain(released).filter(|name| name.starts_with(&prefix)).collect();
        names.sort();
        names.dedup();
        names.retain(|name| name.as_str() > after);
        let is_last = names.len() <= listing.limit() || self.tells(Lie::ListsOnePage);
        names.truncate(listing.limit());
        let next = names.last().filter(|_| !is_last).map(|name| Cursor::new(name.as_str()));
        Ok(Page::new(names.into_iter().filter_map(|name| LockKey::from_stored(name)).collect(), next))
    }

    pub(crate) fn break_hold(&self, key: &LockKey, id: HoldId, record: &BreakRecord, wall: u64) -> bool {
        let name = self.name(key);
        let mut state = self.state();
        let any = self.tells(Lie::BreaksAnybody);
        let found = state.records(&name).iter().find(|record| any || HoldId::of(&record.owner) == id);
        let Some(owner) = found.map(|record| record.owner) else { return false };
        if !self.tells(Lie::LeavesNoRecord) {
            state.broken.insert(id, record.clone());
        }
        if !self.tells(Lie::BreaksInWords) {
            state.remove(&name, |record| record.owner == owner);
            self.freed(&mut state, &name, wall);
        }
        true
    }

    pub(crate) fn leftovers(&self, key: &LockKey) -> Vec<String> {
        let (name, now) = (self.name(key), Clock::system().now());
        let state = self.state();
        let held = state.records(&name).iter().filter(|record| record.until > now).map(|_| "a lock".to_owned());
        let places = state.lines.get(&name).into_iter().flatten().map(|_| "a place in line".to_owned());
        let traces = state.traces.iter().filter(|(key, _)| *key == name).map(|(_, text)| format!("a trace of {text}"));
        held.chain(places).chain(traces).collect()
    }

    /// The owner of the key, as a listener would know it.
    pub(crate) fn holder(&self, name: &str) -> Option<Owner> {
        self.state().records(name).first().map(|record| record.owner)
    }

    /// Was the key's last change a release?
    pub(crate) fn was_released(&self, name: &str) -> bool {
        self.state().released_by.contains_key(name)
    }
}
