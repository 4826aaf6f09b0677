//! The answer of a cluster's server to a look: its identity, and its list of all slots' servers.

use ::redis::Value;

use crate::quarantine::history::ServerDescription;
use crate::reply::read::text;

/// The first and the last slot of a range, its primary, and where that is.
pub(crate) struct Range {
    pub(crate) slots: (u16, u16),
    pub(crate) primary: String,
    pub(crate) address: (String, u16),
}

/// The answer of one server.
pub(crate) struct View {
    pub(crate) ranges: Vec<Range>,
    /// The server itself.
    pub(crate) id: String,
    pub(crate) seen: ServerDescription,
}

impl View {
    /// Reads the answers to `CLUSTER SLOTS`, `CLUSTER MYID`, and to what [`ServerDescription`] is read from; nothing where the user may
    /// not ask.
    pub(crate) fn read(answers: &[Value]) -> Option<Self> {
        let [Value::Array(slots), id, about @ ..] = answers else { return None };
        Some(Self { ranges: ranges(slots)?, id: text(id)?.to_owned(), seen: ServerDescription::read(about)? })
    }
}

/// Reads the answer to `CLUSTER SLOTS`.
pub(crate) fn ranges(slots: &[Value]) -> Option<Vec<Range>> {
    slots.iter().map(range).collect()
}

/// One entry of `CLUSTER SLOTS`: first, last, primary, replicas; of a server its host, its port, its id.
fn range(entry: &Value) -> Option<Range> {
    let Value::Array(entry) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &entry[..] else { return None };
    let [host, Value::Int(port), id, ..] = &primary[..] else { return None };
    Some(Range {
        slots: (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?),
        primary: text(id)?.to_owned(),
        address: (text(host).unwrap_or_default().to_owned(), u16::try_from(*port).ok()?),
    })
}

impl View {
    /// Whether the server says that it has this slot.
    pub(crate) fn has(&self, slot: u16) -> bool {
        let has = |Range { slots, primary, .. }: &Range| (slots.0..=slots.1).contains(&slot) && *primary == self.id;
        self.ranges.iter().any(has)
    }
}
