//! Keys as the attribute's expansions build them.

use crate::key::Key;
use crate::key::part::{KeyPart, KeyWriter, encode};

/// Builds a key for the macro: the pieces in order, by reference, before the body may move the arguments.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct KeyBuilder(String);

impl KeyBuilder {
    #[must_use]
    pub fn new() -> Self {
        Self(String::with_capacity(48))
    }

    pub fn text(&mut self, text: &'static str) {
        encode(text.as_bytes(), &mut self.0);
    }

    pub fn value<T: KeyPart + ?Sized>(&mut self, value: &T) {
        self.0.push('<');
        value.encode(&mut KeyWriter::into(&mut self.0));
        self.0.push('>');
    }

    #[must_use]
    pub fn finish(self) -> KeyBuf {
        KeyBuf(self.0)
    }
}

/// An encoded key without its namespace.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct KeyBuf(pub String);

impl From<Key> for KeyBuf {
    fn from(key: Key) -> Self {
        Self(key.encoded)
    }
}
