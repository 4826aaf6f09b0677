//! The name of a lock in the server.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The server folds case and takes 64 characters at most, so the name is a hash: 248 bits never meet.
pub(super) fn name_of(key: &str) -> String {
    let mut name = String::with_capacity(64);
    name.push_str("d1");
    for byte in Sha256::digest(key.as_bytes()).iter().take(31) {
        // Writing into a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::{Key, LockKey};

    #[test]
    fn names_are_frozen_short_and_differ_by_case_and_suffix() {
        let name = |text: &'static str| name_of(LockKey::new("shop", Key::text(text)).unwrap().as_str());
        assert_eq!(name("a"), NAME_OF_A);
        assert_eq!(name("a").len(), 64);
        assert_ne!(name("a"), name("A"));
        assert_ne!(name("a"), name("a "));
    }

    /// SHA-256 of `dl1:shop:a`, cut.
    const NAME_OF_A: &str = "d17889320ee3fd9adf9f07eb98613e8230b258aa6cdaf0b57090a49f6a16373b";
}
