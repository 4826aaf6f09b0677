//! The name and the number of a lock in the server.

use std::fmt::Write;

use dlock_contract::LockKey;
use sha2::{Digest, Sha256};

/// A lock as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockName {
    /// The text that an operator pastes into the server's functions. The table has it too.
    pub id: String,
    /// A number that differs between the locks of a session.
    pub number: i64,
}

impl LockName {
    /// `d1` and 62 hexadecimal digits of a hash of the key: for a server that folds case and takes 64 characters at most. 248 bits
    /// never meet.
    #[must_use]
    pub fn text_of(key: &LockKey) -> Self {
        let hash = Sha256::digest(key.as_str().as_bytes());
        let mut id = String::with_capacity(64);
        id.push_str("d1");
        for byte in hash.iter().take(31) {
            // Writing into a string cannot fail.
            let _ = write!(id, "{byte:02x}");
        }
        Self { id, number: number_of(&hash) }
    }

    /// The first 64 bits of the same hash: for a server whose locks are numbers. Two keys of one number are one lock.
    #[must_use]
    pub fn number_of(key: &LockKey) -> Self {
        let number = number_of(&Sha256::digest(key.as_str().as_bytes()));
        Self { id: number.to_string(), number }
    }

    /// A name that foreign clients use. Those that differ only in case are one lock.
    #[must_use]
    pub fn literal_text(id: &str) -> Self {
        Self { id: id.to_owned(), number: number_of(&Sha256::digest(id.to_lowercase().as_bytes())) }
    }
}

fn number_of(hash: &[u8]) -> i64 {
    hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte)).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;

    #[test]
    fn names_are_frozen_short_and_differ_by_case_and_suffix() {
        let name = |text: &'static str| LockName::text_of(&LockKey::new("shop", Key::text(text)).unwrap());
        // SHA-256 of `dl1:shop:a`, cut.
        assert_eq!(name("a").id, "d17889320ee3fd9adf9f07eb98613e8230b258aa6cdaf0b57090a49f6a16373b");
        assert_eq!(name("a").id.len(), 64);
        assert_ne!(name("a"), name("A"));
        assert_ne!(name("a"), name("a "));
        let number = LockName::number_of(&LockKey::new("shop", Key::text("a")).unwrap());
        assert_eq!((number.number, number.id.as_str()), (0x7889_320e_e3fd_9adf, "8685528395896691423"));
        assert_eq!(name("a").number, number.number);
        assert_eq!(LockName::literal_text("Job").number, LockName::literal_text("job").number);
    }
}
