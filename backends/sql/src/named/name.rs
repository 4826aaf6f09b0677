//! The name and the number of a lock in the server.

use std::fmt::Write;

use dlock_contract::LockKey;
use sha2::{Digest, Sha256};

/// A lock as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockName {
    /// `d1` and 62 hexadecimal digits: for a server that folds case and takes 64 characters at most.
    pub text: String,
    /// The first 64 bits of the same hash: for a server whose locks are numbers.
    pub number: i64,
}

impl LockName {
    /// A hash of the key. 248 bits never meet; of a billion numbers two meet with a chance of one in forty, and then two keys
    /// are one lock.
    #[must_use]
    pub fn of(key: &LockKey) -> Self {
        let hash = Sha256::digest(key.as_str().as_bytes());
        let mut text = String::with_capacity(64);
        text.push_str("d1");
        for byte in hash.iter().take(31) {
            // Writing into a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        let number = hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Self { text, number: number.cast_signed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;

    #[test]
    fn names_are_frozen_short_and_differ_by_case_and_suffix() {
        let name = |text: &'static str| LockName::of(&LockKey::new("shop", Key::text(text)).unwrap());
        // SHA-256 of `dl1:shop:a`, cut.
        assert_eq!(name("a").text, "d17889320ee3fd9adf9f07eb98613e8230b258aa6cdaf0b57090a49f6a16373b");
        assert_eq!(name("a").number, 0x7889_320e_e3fd_9adf);
        assert_eq!(name("a").text.len(), 64);
        assert_ne!(name("a"), name("A"));
        assert_ne!(name("a"), name("a "));
    }
}
