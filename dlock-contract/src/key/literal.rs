//! Keys as foreign clients write them: the plain text, for locks that are shared with programs that know nothing of dlock.
//!
//! Our own form keeps every two keys apart by marks and escapes. The plain text has none, so it is given only where it
//! can be read in one way.

use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::key::percent::decode;

/// The separators. A value has none of them, and between two values there is at least one.
const SEPARATORS: [char; 8] = [':', '/', '|', '#', ',', ';', '{', '}'];

impl LockKey {
    /// The lock's name as foreign clients write it: the text with its values, without namespace, marks and escapes. The key
    /// `stock:<id>` with the id 42 is `stock:42`, in every namespace. A name that is literal already stays as it is.
    ///
    /// ```
    /// use dlock_contract::{Key, LockKey};
    /// let key = |key| LockKey::new("shop", key);
    /// assert_eq!(key(Key::text("stock:").value(&42)).unwrap().literal().unwrap().as_str(), "stock:42");
    /// // One name for two keys is no name.
    /// assert!(key(Key::new().value("a:b").and_text(":").value("c")).unwrap().literal().is_err());
    /// ```
    ///
    /// **Two keys may have one literal name, and then they are one lock.** Only the one key is looked at, and neither other
    /// templates nor the namespace. Where two templates must not meet, begin each with a text of its own that ends in a
    /// separator.
    ///
    /// ```
    /// use dlock_contract::{Key, LockKey};
    /// let name = |namespace, key| LockKey::new(namespace, key).unwrap().literal().unwrap();
    /// assert_eq!(name("shop", Key::text("order").value(&12)), name("shop", Key::text("order1").value(&2)));
    /// assert_eq!(
    ///     name("shop", Key::text("job:").value("b").and_text(":x")),
    ///     name("shop", Key::text("job:b:").value("x")),
    /// );
    /// assert_eq!(name("shop", Key::text("order").value(&12)), name("bank", Key::text("order").value(&12)));
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the text could be read in another way too, or would be hard to write:
    /// - a value has one of `: / | # , ; { }`, or is absent or no text;
    /// - between two values stands none of these;
    /// - there is a blank or a control character anywhere, or nothing at all;
    /// - the name begins with `dl1:`, as all of dlock's own do, or is `dl1-epoch` or lies below it, where dlock has keys of its
    ///   own in etcd;
    /// - it has braces that are not one pair with something between, which a Redis Cluster would read in its own way.
    pub fn literal(&self) -> Result<Self> {
        // No literal name begins with `dl1:`, so this one is literal already.
        let Some(full) = self.as_str().strip_prefix("dl1:") else { return Ok(self.clone()) };
        let encoded = full.split_once(':').map_or("", |(_, encoded)| encoded);
        let name = without_marks(encoded).and_then(check_name).map_err(|why| {
            Error::new(
                ErrorKind::Unsupported { need: "a key whose plain text can be read in one way only".into() },
                format!("the key has no literal name: {why}"),
            )
            .with_key(self.as_str())
        })?;
        Ok(Self(name.into()))
    }
}

/// Takes marks and escapes away.
fn without_marks(encoded: &str) -> std::result::Result<String, &'static str> {
    let mut name = String::with_capacity(encoded.len());
    let mut rest = encoded;
    // Whether a separator came after the value before.
    let mut separated = true;
    while let Some((text, marked)) = rest.split_once('<') {
        let (value, after) = marked.split_once('>').ok_or("a value lacks its `>`")?;
        let text = decoded(text).ok_or("the text is not UTF-8")?;
        let value = decoded(value).ok_or("a value is missing, or is not UTF-8")?;
        separated |= text.contains(SEPARATORS);
        if !separated {
            return Err("two values need one of : / | # , ; between them");
        }
        if value.contains(SEPARATORS) {
            return Err("a value contains one of : / | # , ; { }");
        }
        name.push_str(&text);
        name.push_str(&value);
        (separated, rest) = (false, after);
    }
    name.push_str(&decoded(rest).ok_or("the text is not UTF-8")?);
    Ok(name)
}

/// Refuses names that foreign clients could not use, or would read as something else.
fn check_name(name: String) -> std::result::Result<String, &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("the name contains a blank or a control character");
    }
    if name.starts_with("dl1:") {
        return Err("the name begins with dl1:, which only dlock's own names do");
    }
    if name.split('/').next() == Some("dl1-epoch") {
        return Err("the name begins with dl1-epoch, which dlock uses for its own keys in etcd");
    }
    let braces = name.matches(['{', '}']).collect::<String>();
    if !(braces.is_empty() || braces == "{}" && !name.contains("{}")) {
        return Err("the name may have one pair of braces, with text between them, and no other brace");
    }
    Ok(name)
}

fn decoded(encoded: &str) -> Option<Cow<'_, str>> {
    if encoded.contains('%') { decode(encoded).map(Cow::Owned) } else { Some(Cow::Borrowed(encoded)) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::key::Key;

    fn name(key: Key) -> Option<String> {
        LockKey::new("shop", key).unwrap().literal().ok().map(|name| name.as_str().to_owned())
    }

    #[test]
    fn a_literal_name_is_what_another_program_writes_by_hand() {
        let id = "6f9619ff-8b86-d011-b42d-00cf4fc964ff";
        for (key, written) in [
            (Key::text("stock:").value(&42), "stock:42"),
            (Key::text("stock:").value(&-42).and_text(":").value(id), "stock:-42:6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
            (Key::text("nightly"), "nightly"),
            (Key::text("{shop}:stock:").value("a.b_c@d+e"), "{shop}:stock:a.b_c@d+e"),
            (Key::text("100%<x>").value("é"), "100%<x>é"),
            (Key::text("a:").value("%41"), "a:%41"),
            (Key::text("a:").value(""), "a:"),
            (Key::text("dl1-epochs/a"), "dl1-epochs/a"),
        ] {
            assert_eq!(name(key).as_deref(), Some(written));
        }
        let other = LockKey::new("other", Key::text("stock:").value(&42)).unwrap();
        assert_eq!(other.literal().unwrap().as_str(), "stock:42");
    }

    #[test]
    fn a_key_that_could_be_read_in_two_ways_has_no_literal_name() {
        for key in [
            Key::new().value("a:b").and_text(":").value("c"),
            Key::new().value("a").and_text(":").value("b:c"),
            Key::new().value("a").value("bc"),
            Key::new().value("1").and_text("x").value("x2"),
            Key::text("a:").value(&None::<u8>),
            Key::text("a:").value(&b"\xff"[..]),
            Key::text("a b"),
            Key::text("a:").value("\u{a0}"),
            Key::text("a:").value("b\n"),
            Key::text("dl1:fence"),
            Key::text("dl1-epoch"),
            Key::text("dl1-epoch/").value("7"),
            Key::new().value(""),
            Key::text("{}a"),
            Key::text("a}b{c"),
            Key::text("{a}{b}"),
            Key::text("a{b"),
        ] {
            let shown = key.to_string();
            let error = LockKey::new("shop", key).unwrap().literal().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && !error.is_retryable(), "{shown}");
        }
    }

    #[test]
    fn values_of_one_template_never_meet() {
        const SIGNS: [char; 10] = ['a', 'b', '-', ':', '/', 'x', '%', '<', '{', 'é'];
        let mut random = fastrand::Rng::with_seed(11);
        let mut part = || (0..random.usize(0..4)).filter_map(|_| random.choice(SIGNS)).collect::<String>();
        for between in [":", "x:", ":x", "/-/", "x"] {
            let mut seen = HashMap::new();
            for _ in 0..20_000 {
                let (one, two) = (part(), part());
                let Some(name) = name(Key::text("k:").value(&one).and_text(between).value(&two)) else { continue };
                let earlier = seen.entry(name).or_insert((one.clone(), two.clone()));
                assert_eq!(*earlier, (one, two));
            }
            // In the last one nothing keeps the two apart.
            assert_eq!(seen.is_empty(), between == "x");
        }
    }
}
