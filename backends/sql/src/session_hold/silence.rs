//! When a session of the server was last not silent. The server ends a session that is silent for the ttl, and counts from there.

use dlock_contract::BootInstant;

use crate::dialect::SessionActivity;

/// When a session was last heard.
#[derive(Debug)]
pub(crate) struct LastHeard {
    /// It has answered something, or was seen at work, after this.
    after: BootInstant,
    /// The numbers of [`SessionActivity::Idle`] that were seen since, each with when that was asked.
    idle: Vec<(i64, BootInstant)>,
}

impl LastHeard {
    pub(crate) fn new(after: BootInstant) -> Self {
        Self { after, idle: Vec::new() }
    }

    pub(crate) fn after(&self) -> BootInstant {
        self.after
    }

    /// Notes that it has lived after this, and was not silent.
    pub(crate) fn note(&mut self, after: BootInstant) {
        self.after = self.after.max(after);
        self.idle.retain(|(_, asked)| *asked > self.after);
    }

    /// Notes what the server says of it to others, who asked at this time.
    pub(crate) fn note_activity(&mut self, activity: SessionActivity, asked: BootInstant) {
        let SessionActivity::Idle(number) = activity else { return self.note(asked) };
        if let Some((_, before)) = self.idle.iter().rfind(|(before, _)| before.abs_diff(number) > 1) {
            self.note(*before);
        }
        self.idle.push((number, asked));
    }
}
