//! Keys that nobody may read: in errors and in the log, a hash takes the place of the key.

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::key::LockKey;
use crate::key::percent;

/// The text that is shown in the place of a sensitive key: `sha256:` and the first 8 bytes of the SHA-256 of the key without its
/// namespace, as 16 hexadecimal digits. All processes show one key alike, so that an operator who knows the key finds its lines.
#[must_use]
pub fn key_hash(key: &str) -> String {
    let digest = Sha256::digest(without_namespace(key));
    let start = digest.iter().take(8).fold(0_u64, |start, byte| start << 8 | u64::from(*byte));
    format!("sha256:{start:016x}")
}

impl Error {
    /// Names the key, or its hash if the key is sensitive. Then the key and its values are also removed from the texts,
    /// and a cause that contains them is dropped.
    #[must_use]
    pub fn with_key_or_hash(self, key: &str, is_sensitive: bool) -> Self {
        if !is_sensitive {
            return self.with_key(key);
        }
        let (hash, parts) = (key_hash(key), parts_of(key));
        self.without(&hash, |text| has_any(text, &parts), |text| hide(text, &parts, &hash))
    }
}

fn without_namespace(key: &str) -> &str {
    match LockKey::from_stored(key) {
        Some(_) => key.splitn(3, ':').nth(2).unwrap_or(key),
        None => key,
    }
}

/// The key in all forms in which stores name it, and its values; the longest first.
fn parts_of(key: &str) -> Vec<String> {
    let text = without_namespace(key);
    let literal = text.replace(['<', '>'], "");
    let values = text.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(value, _)| value.to_owned());
    let mut parts: Vec<_> = [key.to_owned(), text.to_owned(), literal].into_iter().chain(values).collect();
    parts.extend(parts.iter().filter_map(|part| percent::decode(part)).collect::<Vec<_>>());
    parts.extend(parts.iter().map(|part| part.escape_default().to_string()).collect::<Vec<_>>());
    parts.retain(|part| !part.is_empty());
    parts.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    parts.dedup();
    parts
}

fn has_any(text: &str, parts: &[String]) -> bool {
    parts.iter().any(|part| find(text, part).is_some())
}

fn hide(text: &str, parts: &[String], hash: &str) -> String {
    let mut hidden = text.to_owned();
    for part in parts {
        let (mut done, mut rest) = (String::new(), hidden.as_str());
        while let Some(at) = find(rest, part) {
            done += &rest[..at];
            done += hash;
            rest = &rest[at + part.len()..];
        }
        hidden = done + rest;
    }
    hidden
}

/// The place of a whole word: the value `5` is not in `50 ms`.
fn find(text: &str, part: &str) -> Option<usize> {
    let is_whole = |at: usize| {
        let joins = |one: Option<char>, other: Option<char>| {
            one.zip(other).is_some_and(|(one, other)| one.is_alphanumeric() && other.is_alphanumeric())
        };
        let (before, after) = (&text[..at], &text[at + part.len()..]);
        let joins_before = joins(before.chars().next_back(), part.chars().next());
        !joins_before && !joins(part.chars().next_back(), after.chars().next())
    };
    text.match_indices(part).map(|(at, _)| at).find(|at| is_whole(*at))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::error::ErrorKind;
    use crate::key::Key;

    fn patient() -> String {
        LockKey::new("clinic", Key::text("patient:").value("Ann Lee").and_text(":").value(&4711)).unwrap().to_string()
    }

    #[test]
    fn the_hash_of_a_key_is_frozen_and_is_that_of_the_text_that_people_type() {
        // printf %s 'stock:<42>' | sha256sum | cut -c1-16
        let key = LockKey::new("shop", Key::text("stock:").value(&42)).unwrap();
        assert_eq!(key_hash(key.as_str()), "sha256:7408baceedf055e0");
        assert_eq!(key_hash("stock:<42>"), key_hash(key.as_str()));
    }

    #[test]
    fn a_sensitive_key_is_in_no_part_of_an_error() {
        let inner = Error::outage("the store has no row `Ann Lee`");
        for error in [
            Error::outage(format!("no {} and no 4711, within 47110 ms", patient())).with_key(&patient()).because(inner),
            Error::outage("Ann%20Lee is held").with_key("{clinic:patient:<Ann%20Lee>}"),
            Error::new(ErrorKind::Busy, "patient:Ann%20Lee:4711 is held; patient:Ann Lee:4711 too"),
        ] {
            let error = error.with_key_or_hash(&patient(), true);
            let shown = format!("{error} {error:?} {:?}", error.source());
            for part in ["Ann", "Lee", "4711 ", "4711,", "<4711>", "patient"] {
                assert!(!shown.contains(part), "{part} in {shown}");
            }
            assert_eq!(error.key(), Some(&*key_hash(&patient())));
        }
    }

    #[test]
    fn the_other_words_of_an_error_stay() {
        let error = Error::outage("no answer within 47110 ms").because(Error::outage("refused")).with_code("OOM");
        let error = error.with_key_or_hash(&patient(), true);
        assert_eq!((error.message(), error.code()), ("no answer within 47110 ms", Some("OOM")));
        assert!(error.source().is_some());
        assert_eq!(Error::outage("x").with_key_or_hash(&patient(), false).key(), Some(&*patient()));
    }
}
