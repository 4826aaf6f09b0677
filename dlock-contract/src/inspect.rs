//! Inspection: who holds a lock, which locks are held, and ending a hold from outside.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::Result;
use crate::hold::Hold;
use crate::hold_id::HoldId;
use crate::key::LockKey;
use crate::note::{Note, plain_line};

/// One holder of a lock, as the store reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Host, process, site, and since when.
    pub note: Note,
    /// For [`Inspect::break_hold`]. `None` for a foreign client's lock, and for a key that is kept after its hold's end.
    pub id: Option<HoldId>,
    /// The fencing token, where the store keeps it beside the lock.
    pub token: Option<u64>,
    /// How long the lease still runs, by the store's clock. `None` where the lock lives in a session.
    pub lease_left: Option<Duration>,
    /// The number of the permit.
    pub slot: Option<u32>,
}

impl Holder {
    /// A holder with this note; the store adds what it knows.
    #[must_use]
    pub fn new(note: Note) -> Self {
        Self { note, id: None, token: None, lease_left: None, slot: None }
    }

    /// The holder after a change of its fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A foreign client's hold. Its value may be a secret that frees the lock, so it is not shown.
    #[must_use]
    pub fn foreign_client(lease_left: Option<Duration>) -> Self {
        Self::new(Note::from_stored(Note::FOREIGN_CLIENT)).with(|holder| holder.lease_left = lease_left)
    }
}

/// The holders of a lock, and the number of its waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// In the order of their grants; none if the lock is free.
    pub holders: Vec<Holder>,
    /// The number of waiters in the store's wait queue; `None` where the store does not know it. Callers of one process
    /// that wait behind each other count as one.
    pub waiters: Option<u64>,
    /// The names of the lock in the store, as an operator pastes them into the store's own tools. The engine takes them from
    /// [`Backend::identify`](crate::Backend::identify).
    pub names: Vec<String>,
}

impl LockState {
    /// The state of a lock with these holders.
    #[must_use]
    pub fn new(holders: Vec<Holder>, waiters: Option<u64>) -> Self {
        Self { holders, waiters, names: Vec::new() }
    }

    /// The note of the first holder; `None` if nobody holds the lock.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        self.holders.first().map(|holder| &holder.note)
    }
}

/// Which locks to list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The namespace; all of it where the prefix is empty.
    pub namespace: String,
    /// The beginning of the key, as it is shown: `stock:` or `stock:<4`.
    pub prefix: String,
    /// How many entries of the store one call looks at, at most. 1 to 1000.
    pub limit: u32,
    /// The end of the page before this one.
    pub after: Option<Cursor>,
}

impl Listing {
    /// The first page of the locks of a namespace: at most 100 entries.
    #[must_use]
    pub fn of(namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), prefix: String::new(), limit: 100, after: None }
    }

    /// The listing after a change of its fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The beginning of the names to list: `dl1:<namespace>:<prefix>`.
    ///
    /// # Errors
    /// For a namespace that cannot be.
    pub fn name_prefix(&self) -> Result<String> {
        LockKey::check_namespace(&self.namespace)?;
        Ok(format!("dl1:{}:{}", self.namespace, self.prefix))
    }

    /// The limit within its bounds.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.clamp(1, 1000) as usize
    }
}

/// The end of a page; only the store that gave it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// The store's own text for the place.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the store and for a command line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Locks that are held. May be fewer than the limit, and none, although more pages follow.
    pub locks: Vec<LockKey>,
    /// The next page begins here; `None` after the last one.
    pub next: Option<Cursor>,
}

impl Page {
    /// A page.
    #[must_use]
    pub fn new(locks: Vec<LockKey>, next: Option<Cursor>) -> Self {
        Self { locks, next }
    }
}

/// The record of a broken hold: operator, time and reason. Its holder reads it with the loss. At most 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakRecord(Box<str>);

impl BreakRecord {
    /// A record. Blanks in the operator's name and characters that are no printable ASCII become `_`; the reason is cut.
    #[must_use]
    pub fn new(operator: &str, at_ms: u64, reason: &str) -> Self {
        let operator: String = operator.chars().take(64).map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        Self(plain_line(&format!("by={operator} t={at_ms} r={reason}")).into())
    }

    /// Reads a record back. Anything is taken: it is only shown.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(plain_line(text).into())
    }

    /// The record as it is stored: `by=… t=… r=…`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The operator who broke the hold.
    #[must_use]
    pub fn operator(&self) -> Option<&str> {
        self.0.strip_prefix("by=")?.split(' ').next()
    }

    /// When, in milliseconds since 1970 by the operator's clock.
    #[must_use]
    pub fn at_ms(&self) -> Option<u64> {
        self.0.split(' ').nth(1)?.strip_prefix("t=")?.parse().ok()
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.split_once(" r=").map(|(_, reason)| reason)
    }
}

/// For people: who, when on that day, and why. A record of another form is shown as it is.
impl fmt::Display for BreakRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(operator), Some(at), Some(reason)) = (self.operator(), self.at_ms(), self.reason()) else {
            return f.write_str(&self.0);
        };
        let seconds = at / 1000 % 86_400;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{operator}, at {hours:02}:{minutes:02}:{seconds:02} UTC: {reason}")
    }
}

/// Listing the locks of a store, and ending a hold from outside.
pub trait Inspect: Send + Sync {
    /// One page of the locks that are held. The cost of a call is bounded by [`Listing::limit`], however many locks there
    /// are: an indexed range or a scan with a count, never a look at everything.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>>;

    /// Ends the hold of this id, and leaves the record for one ttl of the hold, or for a minute where the ttl is not known.
    /// A waiter gets the lock as after a release. False: no hold of this id holds the lock, and nothing has changed.
    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>>;

    /// The notes of the first `limit` waiters in the store's wait queue, in its order. `None` where the store keeps no notes
    /// of waiters, for this lock or at all. Changes nothing.
    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        let _ = (key, limit);
        Box::pin(async { Ok(None) })
    }

    /// The record of a hold that was broken. Asked once, after the store has answered that the hold is lost.
    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_stays_short() {
        let record = BreakRecord::new("alice@ops", 17, "web-3 hangs since noon");
        let read = BreakRecord::from_stored(record.as_str());
        assert_eq!(read, record);
        assert_eq!(
            (read.operator(), read.at_ms(), read.reason()),
            (Some("alice@ops"), Some(17), Some("web-3 hangs since noon"))
        );
        let long = BreakRecord::new(&"a b".repeat(99), 1, &"é\n".repeat(500));
        assert!(long.as_str().len() <= 256 && long.as_str().is_ascii() && long.operator().is_some());
        assert_eq!(BreakRecord::from_stored("").operator(), None);
    }
}
