//! The name of a lock's wait queue in the server.

use sha2::{Digest, Sha256};

use crate::tables::hex::hex;

/// The name of a wait queue: a hash. The server cuts or folds longer names, and PostgreSQL has numbers instead of
/// names.
///
/// It is frozen, with its word `room`: two releases with two names would have two queues for one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueName([u8; 32]);

impl QueueName {
    /// The queue of a lock's row. Without the scope of the table (database or schema), two databases with one key would
    /// share a queue, and their waiters would wait for each other.
    #[must_use]
    pub fn of(scope: &str, row: &str) -> Self {
        let parts: [&[u8]; 5] = [b"dlock room", b"\0", scope.as_bytes(), b"\0", row.as_bytes()];
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update(part));
        Self(hash.finalize().into())
    }

    /// 64 characters, for servers that know locks by texts. Named locks of the way `named` begin with `d1`.
    #[must_use]
    pub fn text(&self) -> String {
        let [hash @ .., _] = &self.0;
        format!("dr{}", hex(hash))
    }

    /// 64 bits, for servers that know locks by numbers.
    #[must_use]
    pub fn number(&self) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_frozen_and_differ_by_scope_and_row() {
        let name = QueueName::of("shop", "dl1:shop:<42>");
        assert_eq!(name.text(), "dr7664a637f78ada91a0275aa612d05da5e44eedfee20c99c17bd092e1f71f42");
        assert_eq!(name.number(), 8531126353453046417);
        assert_ne!(name, QueueName::of("other", "dl1:shop:<42>"));
        assert_ne!(name, QueueName::of("shop", "dl1:shop:<43>"));
        assert_ne!(QueueName::of("a", "b"), QueueName::of("ab", ""));
    }
}
