//! The names in the server, for tests that look behind the backend's back. They are written out here alone: other tests
//! ask this file for them.

use dlock::{Key, LockKey};
use dlock_testkit::holds;

/// The counter of fencing tokens.
pub(crate) const FENCE: &str = "dl1:fence";

/// The lock of the claims on `k`.
pub(crate) const K: &str = "dl1:{test:<k>}";

/// The wait queue of that lock.
pub(crate) const K_QUEUE: &str = "dl1:{test:<k>}:q";

/// The processes that wait in that queue.
pub(crate) const K_PROCESSES: &str = "dl1:{test:<k>}:a";

/// A pattern for all names and channels that dlock chooses itself.
pub(crate) const OURS: &str = "dl1:*";

/// The rights of an account on all of them.
pub(crate) const RIGHTS: &str = "~dl1:* &dl1:*";

/// A pattern for the channels on which processes hear of their locks.
pub(crate) const CHANNELS: &str = "dl1:p:*";

/// A lock.
pub(crate) use dlock_testkit::holds::name_in_redis as of;

/// The lock of the claims on this text.
pub(crate) fn of_text(text: &str) -> String {
    of(&holds::key(text))
}

/// A lock in the default namespace.
pub(crate) fn of_default(key: Key) -> String {
    of(&LockKey::new("default", key).unwrap())
}

/// The queue's memory of foreign clients, beside a lock with this literal name.
pub(crate) fn memory_of_foreign_clients(literal: &str) -> String {
    if literal.contains('{') { format!("dl1:t:{literal}:x") } else { format!("dl1:l:{{{literal}}}:x") }
}

/// Whether dlock has chosen this name itself.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("dl1:")
}

/// The channel on which a process hears of its locks.
pub(crate) fn channel(process: &str) -> String {
    format!("dl1:p:{process}")
}

#[test]
fn the_names_of_locks_are_frozen() {
    assert_eq!(of_text("k"), K);
    assert_eq!(of_default(Key::text("stock:").value(&42)), "dl1:{default:stock:<42>}");
}
