//! Keys: from a template's pieces and values to one name that no other pieces and values can give.
//!
//! The form, version 1: `dl1:<namespace>:<text>`, where each placeholder of the template has become its value between
//! `<` and `>`. Everything else that could be mistaken is percent-encoded, so `a:b` + `c` and `a` + `b:c` differ, and
//! so do neighbours (`<a><b>`). Frozen: two releases that disagreed here would run two locks side by side.

mod buf;
pub(crate) mod literal;
pub(crate) mod part;
pub(crate) mod percent;
pub(crate) mod sensitive;
pub(crate) mod template;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use crate::key::buf::{KeyBuf, KeyBuilder};

use crate::error::{Error, ErrorKind};
use crate::key::part::{KeyPart, KeyWriter, encode};
use crate::key::template::without_names;

/// The longest key, in encoded bytes; longer ones are refused before any request.
pub const MAX_KEY_BYTES: usize = 4096;

/// A key being put together: literal text and values, in order.
///
/// ```
/// use dlock_contract::Key;
/// let key = Key::text("stock:").value(&42_u64);
/// assert_eq!(key.to_string(), "stock:<42>");
/// assert_eq!(key.template(), "stock:<>");
/// // Values cannot reach out of their place.
/// assert_ne!(Key::new().value("a").value("bc").to_string(), Key::new().value("ab").value("c").to_string());
/// ```
#[derive(Clone)]
pub struct Key {
    encoded: String,
    template: String,
}

/// Keys of one lock are equal, wherever their templates come from.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.encoded == other.encoded
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.encoded.hash(state);
    }
}

impl Key {
    /// An empty key; add to it.
    #[must_use]
    pub const fn new() -> Self {
        Self { encoded: String::new(), template: String::new() }
    }

    /// A key that begins with a literal text.
    #[must_use]
    pub fn text(text: &'static str) -> Self {
        Self::new().and_text(text)
    }

    /// Adds literal text. It must be a literal, so that nothing a stranger wrote becomes part of the template.
    #[must_use]
    pub fn and_text(mut self, text: &'static str) -> Self {
        encode(text.as_bytes(), &mut self.encoded);
        self.template.push_str(text);
        self
    }

    /// Adds a value, as a placeholder of the attribute's template would.
    #[must_use]
    pub fn value<T: KeyPart + ?Sized>(mut self, value: &T) -> Self {
        self.encoded.push('<');
        value.encode(&mut KeyWriter::into(&mut self.encoded));
        self.encoded.push('>');
        self.template.push_str("<>");
        self
    }

    /// A key as it is shown, or as somebody types it: `stock:<42>` has a value, and `stock:42` has none. Escapes such as `%20`
    /// stand for their byte; what a key cannot have is escaped.
    ///
    /// ```
    /// use dlock_contract::Key;
    /// let key = Key::rendered("stock:<42>");
    /// assert_eq!(key, Key::text("stock:").value(&42));
    /// assert_eq!(key.template(), "stock:<>");
    /// assert_eq!(Key::rendered("stock:42"), Key::text("stock:42"));
    /// let odd = Key::text("50% ").value("a>b");
    /// assert_eq!(Key::rendered(&odd.to_string()).to_string(), odd.to_string());
    /// ```
    #[must_use]
    pub fn rendered(text: &str) -> Self {
        let mut encoded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('<') {
            let value = rest[start + 1..].split_once('>').filter(|(value, _)| !value.contains('<'));
            let (text, tail) = rest.split_at(start);
            encode_rest(text, false, &mut encoded);
            match value {
                Some((value, after)) => {
                    encoded.push('<');
                    encode_rest(value, true, &mut encoded);
                    encoded.push('>');
                    rest = after;
                }
                None => {
                    encode(b"<", &mut encoded);
                    rest = &tail[1..];
                }
            }
        }
        encode_rest(rest, false, &mut encoded);
        let template = without_names(&encoded);
        Self { encoded, template }
    }

    /// A key that the macro has built.
    pub fn of(key: &KeyBuf, template: &str) -> Self {
        Self { encoded: key.0.clone(), template: without_names(template) }
    }

    /// The key with empty placeholders: the label for metrics, which must never hold a value.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.template
    }
}

/// Encodes what has no escape yet.
fn encode_rest(text: &str, is_value: bool, out: &mut String) {
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return,
            [b'%', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                // Written as every key has this byte. If `%2F` stayed, a typed key could be another lock than `/` in one
                // store and the same lock in another.
                let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap_or(0)).unwrap_or(0);
                encode(&[digit(*high) << 4 | digit(*low)], out);
                tail
            }
            // The mark of a value that is absent.
            [b'%', b'-', tail @ ..] if is_value => {
                out.push_str("%-");
                tail
            }
            [byte, tail @ ..] => {
                encode(&[*byte], out);
                tail
            }
        };
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&'static str> for Key {
    /// One lock with a fixed name. For values use [`Key::value`].
    fn from(text: &'static str) -> Self {
        Self::text(text)
    }
}

impl From<&LockKey> for Key {
    /// The key of a lock that was listed, for further questions about it in the namespace in which it was found.
    fn from(name: &LockKey) -> Self {
        let encoded = match name.as_str().strip_prefix("dl1:").and_then(|rest| rest.split_once(':')) {
            Some((_, encoded)) => encoded.to_owned(),
            None => {
                let mut encoded = String::new();
                encode(name.as_str().as_bytes(), &mut encoded);
                encoded
            }
        };
        let template = without_names(&encoded);
        Self { encoded, template }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.encoded)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// A lock's full name: versioned, namespaced, encoded. Backends get keys in this form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey(pub Arc<str>);

impl LockKey {
    /// Checks the first part of every key.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`].
    pub fn check_namespace(namespace: &str) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if namespace.is_empty() || namespace.len() > 64 || !namespace.bytes().all(plain) {
            return Err(Error::config(
                "namespace",
                "a namespace has 1 to 64 ASCII letters, digits, dots, underscores and hyphens",
            ));
        }
        Ok(())
    }

    /// The full name of `key` in `namespace`.
    ///
    /// # Errors
    /// [`ErrorKind::KeyTooLong`] above [`MAX_KEY_BYTES`]; [`ErrorKind::ConfigInvalid`] for a namespace that is empty,
    /// longer than 64 bytes or has anything but ASCII letters, digits, `.`, `_` and `-`.
    pub fn new(namespace: &str, key: impl Into<KeyBuf>) -> Result<Self, Error> {
        Self::check_namespace(namespace)?;
        Self::within(namespace, &key.into())
    }

    /// As [`new`](Self::new), for a namespace that was checked when it was set.
    pub fn within(namespace: &str, key: &KeyBuf) -> Result<Self, Error> {
        let length = "dl1::".len() + namespace.len() + key.0.len();
        if length > MAX_KEY_BYTES {
            return Err(Error::new(
                ErrorKind::KeyTooLong { max: MAX_KEY_BYTES },
                format!("the encoded key has {length} bytes, at most {MAX_KEY_BYTES} are allowed"),
            )
            .with_key(&key.0));
        }
        let mut full = String::with_capacity(length);
        full.push_str("dl1:");
        full.push_str(namespace);
        full.push(':');
        full.push_str(&key.0);
        Ok(Self(full.into()))
    }

    /// The key of a name in a store; `None` if the name does not have dlock's own form.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        let (namespace, key) = text.strip_prefix("dl1:")?.split_once(':')?;
        let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        let fits = text.len() <= MAX_KEY_BYTES && key.bytes().all(is_name) && Self::check_namespace(namespace).is_ok();
        fits.then(|| Self(text.into()))
    }

    /// The full name: `dl1:<namespace>:<key>`, printable ASCII without blanks and braces; or a [literal](Self::literal) one.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockKey({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(key: Key) -> String {
        LockKey::new("shop", key).unwrap().to_string()
    }

    #[test]
    fn the_text_of_a_key_has_its_frozen_form() {
        assert_eq!(full(Key::text("stock:").value(&42_u64)), "dl1:shop:stock:<42>");
        assert_eq!(full(Key::text("a b{c}").value("x:y<z>%é\0")), "dl1:shop:a%20b%7Bc%7D<x:y%3Cz%3E%25%C3%A9%00>");
        assert_eq!(full(Key::new().value(&None::<u8>)), "dl1:shop:<%->");
        assert_eq!(full(Key::new().value(&Some("5"))), "dl1:shop:<5>");
    }

    #[test]
    fn a_key_that_was_shown_is_read_back() {
        for key in [
            Key::text("a<b>c"),
            Key::text("50%"),
            Key::new().value("x:y<z>%é\0").and_text(" ").value(&None::<u8>),
            Key::new().value("%-").value(&Some(None::<u8>)),
        ] {
            assert_eq!(full(Key::rendered(&key.to_string())), full(key));
        }
        for (typed, shown) in [
            ("a b", "a%20b"),
            ("a<b", "a%3Cb"),
            ("a>b", "a%3Eb"),
            ("<<1>", "%3C<1>"),
            ("%3c%", "%3C%25"),
            ("<%2f>%61", "</>a"),
        ] {
            assert_eq!(Key::rendered(typed).to_string(), shown);
        }
    }

    #[test]
    fn different_keys_have_different_names() {
        let pairs: [(Key, Key); 9] = [
            (Key::new().value("a:b").value("c"), Key::new().value("a").value("b:c")),
            (Key::new().value("a").value("bc"), Key::new().value("ab").value("c")),
            (Key::new().value("1").and_text("x").value("x2"), Key::new().value("1x").and_text("x").value("2")),
            (Key::new().value(""), Key::new().value(&None::<String>)),
            (Key::new().value("None"), Key::new().value(&None::<String>)),
            (Key::new().value("%-"), Key::new().value(&None::<String>)),
            (Key::new().value("x"), Key::new().value("x ")),
            (Key::new().value("A"), Key::new().value("a")),
            (Key::text("a").value("b"), Key::text("a<b>")),
        ];
        for (one, other) in pairs {
            assert_ne!(full(one), full(other));
        }
        assert_ne!(LockKey::new("a", Key::text("b:c")).unwrap(), LockKey::new("a.b", Key::text("c")).unwrap());
    }

    #[test]
    fn random_values_never_meet() {
        let mut seen = std::collections::HashMap::new();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let part = |random: &mut fastrand::Rng| {
                (0..random.usize(0..4))
                    .map(|_| random.choice(b"ab<>%-:{ 0\xff".iter()).copied().unwrap_or(0))
                    .collect::<Vec<u8>>()
            };
            let (one, two) = (part(&mut random), part(&mut random));
            let key = full(Key::new().value(&one).and_text("b").value(&two));
            if let Some(earlier) = seen.insert(key.clone(), (one.clone(), two.clone())) {
                assert_eq!(earlier, (one, two), "{key}");
            }
        }
    }

    #[test]
    fn extremes_of_integers_are_kept() {
        assert_eq!(Key::new().value(&i64::MIN).to_string(), "<-9223372036854775808>");
        assert_eq!(Key::new().value(&u128::MAX).to_string(), "<340282366920938463463374607431768211455>");
    }

    #[test]
    fn a_long_key_is_refused() {
        let room = MAX_KEY_BYTES - "dl1:shop:<>".len();
        assert!(LockKey::new("shop", Key::new().value(&"x".repeat(room))).is_ok());
        let error = LockKey::new("shop", Key::new().value(&"x".repeat(room + 1))).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::KeyTooLong { max: MAX_KEY_BYTES }));
    }

    #[test]
    fn a_namespace_is_plain() {
        for bad in ["", "a:b", "a b", "é", &"x".repeat(65)] {
            assert!(matches!(LockKey::new(bad, "k".into_key()).unwrap_err().kind(), ErrorKind::ConfigInvalid { .. }));
        }
    }

    trait IntoKey {
        fn into_key(self) -> Key;
    }
    impl IntoKey for &'static str {
        fn into_key(self) -> Key {
            self.into()
        }
    }
}
