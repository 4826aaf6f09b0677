//! The name of a lock's row.
//!
//! A key is the name of its row, as an operator types it. An index takes no 4096 bytes on any of the servers, so a long
//! key has a name of 255 bytes: its beginning and a hash. Short names have 254 bytes at most, so the two never meet.
//! The whole key of a long name is in a column of its own.
//!
//! Keys are ASCII. The name of a row in a table of the user's own may have any character.

use std::fmt::Write;

use dlock_contract::{Error, ErrorKind, LockKey};
use sha2::{Digest, Sha256};

/// The bytes of a long key that its name has.
const HEAD_LENGTH: usize = 190;

/// The longest key that is its own name.
const LONGEST_NAME: usize = 254;

/// A lock's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowName {
    pub(crate) name: String,
    /// Whether the key needs a column of its own.
    pub(crate) is_long: bool,
}

pub(crate) fn row_name(key: &LockKey) -> RowName {
    name_of(key.as_str())
}

/// Like [`row_name`], for any text.
pub(crate) fn name_of(key: &str) -> RowName {
    if key.len() <= LONGEST_NAME {
        return RowName { name: key.to_owned(), is_long: false };
    }
    let mut name = String::with_capacity(LONGEST_NAME + 1);
    name.push_str(head_of(key));
    // Never shorter than 255 bytes. A short name could be the same otherwise.
    while name.len() <= HEAD_LENGTH {
        name.push('~');
    }
    for byte in Sha256::digest(key.as_bytes()) {
        // Writing into a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    RowName { name, is_long: true }
}

/// The beginning of a text, as long names have it; all of a short text. It never cuts a character.
pub(crate) fn head_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(HEAD_LENGTH)]
}

/// The upper bound of all texts that begin with `start`, in byte order: `start` with its last character raised by one. So a
/// printable ASCII `start` gives an ASCII bound. The encoding of a database may lack other characters.
pub(crate) fn end_of(start: &str) -> String {
    let mut rest = start.chars();
    while let Some(last) = rest.next_back() {
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            return format!("{}{next}", rest.as_str());
        }
    }
    char::MAX.into()
}

/// The namespace of a key: the text between its first two colons.
pub(crate) fn namespace(key: &LockKey) -> &str {
    key.as_str().split(':').nth(1).unwrap_or_default()
}

/// A row that dlock cannot have written.
pub(crate) fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::CorruptState, format!("a row of dlock's table is not dlock's: {what}; delete that row"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use dlock_contract::Key;
    use proptest::prelude::*;

    use super::*;

    fn key(value: &str) -> LockKey {
        LockKey::new("shop", Key::new().value(value)).unwrap()
    }

    /// Texts around the lengths where names change, with any text at their end.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let lengths = prop_oneof![0..3_usize, 170..260_usize];
        let text = (lengths, any::<String>()).prop_map(|(length, end)| "x".repeat(length) + &end);
        prop::collection::vec(text, 50)
    }

    proptest! {
        #[test]
        fn each_key_has_a_row_of_its_own(texts in texts()) {
            let mut keys = HashMap::new();
            for text in texts {
                let key = key(&text);
                let RowName { name, is_long } = row_name(&key);
                prop_assert!(name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
                prop_assert!(is_long || name == key.as_str());
                let other = keys.insert(name, key.clone()).filter(|other| *other != key);
                prop_assert!(other.is_none(), "{key:?} {other:?}");
            }
        }

        /// The name of a row in the user's own table may have any character.
        #[test]
        fn each_text_has_a_row_of_its_own(texts in texts()) {
            let mut rows = HashMap::new();
            for text in texts {
                let name = name_of(&text).name;
                prop_assert!(name.len() <= 255, "{name}");
                let other = rows.insert(name, text.clone()).filter(|other| *other != text);
                prop_assert!(other.is_none(), "{text:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_key_is_the_name_of_its_row() {
        let row = row_name(&key("42"));
        assert_eq!((row.name.as_str(), row.is_long), ("dl1:shop:<42>", false));
        assert_eq!(namespace(&key("a:b")), "shop");
    }

    #[test]
    fn long_keys_have_names_of_255_bytes_that_differ() {
        let long = |end: &str| row_name(&key(&format!("{}{end}", "x".repeat(400))));
        assert_eq!(long("a").name.len(), 255);
        assert!(long("a").is_long && long("a") == long("a"));
        assert_ne!(long("a"), long("b"));
        let short = row_name(&key(&"x".repeat(254 - "dl1:shop:<>".len())));
        assert_eq!((short.name.len(), short.is_long), (254, false));
        assert!(row_name(&key(&"x".repeat(255 - "dl1:shop:<>".len()))).is_long);
    }

    #[test]
    fn the_name_of_a_long_text_has_its_beginning_and_no_half_of_a_character() {
        for (text, head) in [("é".repeat(150), 190), (format!("x{}", "é".repeat(150)), 189), ("🔒".repeat(70), 188)]
        {
            let name = name_of(&text).name;
            assert_eq!((name.len(), head_of(&text).len()), (255, head));
            assert!(name.starts_with(&text[..head]) && name[head..].starts_with('~'), "{name}");
        }
        assert_eq!(head_of("äbc"), "äbc");
    }

    #[test]
    fn the_end_of_a_range_is_above_all_names_that_begin_so_and_no_other() {
        for (start, end) in [("a", "b"), ("t.id=", "t.id>"), ("~", "\u{7f}"), ("aé", "aê"), ("\u{d7ff}", "\u{e000}")]
        {
            assert_eq!(end_of(start), end);
            for more in ["", "a", "~", "äbc", "🔒", "\u{10ffff}"] {
                assert!(*format!("{start}{more}") < *end, "{start}{more}");
            }
        }
        assert_eq!(end_of("a\u{10ffff}"), "b");
        assert_eq!(end_of(""), "\u{10ffff}");
    }
}
