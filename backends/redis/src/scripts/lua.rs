//! A script, and the keys that it touches in a cluster.

use ::redis::Script;

/// One script.
pub struct Lua {
    /// The text, which the server keeps.
    pub text: String,
    pub(crate) digest: String,
    /// The keys that it may touch beside the lock: the slot's counter, and the lock's name with these endings. In a
    /// cluster all keys are declared. `None`: it touches only the lock.
    pub(crate) keys: Option<&'static [&'static str]>,
}

/// The endings of all keys beside a lock.
const ALL: &[&str] = &[":q", ":a", ":x", ":r", ":s", ":h", ":n", ":w", ":p"];

impl Lua {
    /// Joins the parts.
    pub fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        Self { digest: Script::new(&text).get_hash().to_owned(), text, keys: Some(ALL) }
    }

    /// Declares the keys that the script touches, if they are fewer than all.
    pub(crate) fn on(self, keys: Option<&'static [&'static str]>) -> Self {
        Self { keys, ..self }
    }
}
