//! The values that a key may contain, and their written form, which cannot run into its neighbours.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A value that a key may contain.
///
/// Equal values must write equal bytes and different values different ones. Floats are left out on purpose: `-0.0`,
/// `NaN` and rounding make two spellings of one amount. Implement it for your own identifiers:
///
/// ```
/// use dlock_contract::{KeyPart, KeyWriter};
/// struct OrderId(u64);
/// impl KeyPart for OrderId {
///     fn encode(&self, out: &mut KeyWriter<'_>) {
///         out.display(self.0);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock's key",
    label = "write a part of it that can, such as `<order.id>`, or one of what the notes say",
    note = "a value made of it: `key = dlock::Key::text(\"order:\").value(&order.to_string())`",
    note = "a type of your own: `impl dlock::KeyPart for YourType`",
    note = "a `Uuid`: the feature `uuid` of `dlock-rs`",
    note = "a list: `keys = \"order:<ids..>\"`, which takes a lock for each value",
    note = "a float: its `to_bits()`, or whole units, since `-0.0` and `NaN` make keys that do not compare; integers, `bool`, `char`, strings, bytes and `Option`s of them stand for themselves"
)]
pub trait KeyPart {
    /// Writes the value.
    fn encode(&self, out: &mut KeyWriter<'_>);
}

/// Where a [`KeyPart`] writes its value. Everything written is encoded; nothing can leave its place.
#[derive(Debug)]
pub struct KeyWriter<'a> {
    out: &'a mut String,
}

impl<'a> KeyWriter<'a> {
    pub(crate) const fn into(out: &'a mut String) -> Self {
        Self { out }
    }

    /// Writes text, byte for byte: no trimming, no folding of case, no Unicode normalisation.
    pub fn text(&mut self, text: &str) {
        encode(text.as_bytes(), self.out);
    }

    /// Writes bytes; they need not be UTF-8.
    pub fn bytes(&mut self, bytes: &[u8]) {
        encode(bytes, self.out);
    }

    /// Writes what a type displays, for the integers and the like.
    pub fn display(&mut self, value: impl fmt::Display) {
        // Encodes while it is written, without a string in between.
        struct Through<'a>(&'a mut String);
        impl fmt::Write for Through<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                encode(text.as_bytes(), self.0);
                Ok(())
            }
        }
        // Writing into a string cannot fail; a `Display` that fails of itself has written what it could.
        let _ = fmt::Write::write_fmt(&mut Through(self.out), format_args!("{value}"));
    }

    /// Writes the mark of an absent value, which differs from every text, also from the empty one. An `Option` around
    /// such a value writes one mark more, so that `Some(None)` is no `None`.
    pub fn absent(&mut self) {
        self.out.push_str(ABSENT);
    }
}

/// The mark of an absent value. A `%` that is not followed by two digits stands for nothing else.
const ABSENT: &str = "%-";

macro_rules! displayed {
    ($($type:ty)*) => {$(
        impl KeyPart for $type {
            fn encode(&self, out: &mut KeyWriter<'_>) {
                out.display(self);
            }
        }
    )*};
}

displayed! {
    u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize bool
    std::num::NonZeroU8 std::num::NonZeroU16 std::num::NonZeroU32 std::num::NonZeroU64 std::num::NonZeroU128
    std::num::NonZeroUsize std::num::NonZeroI8 std::num::NonZeroI16 std::num::NonZeroI32 std::num::NonZeroI64
    std::num::NonZeroI128 std::num::NonZeroIsize
    std::net::IpAddr std::net::Ipv4Addr std::net::Ipv6Addr
}

#[cfg(feature = "uuid")]
displayed! { uuid::Uuid }

impl KeyPart for char {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        out.text(self.encode_utf8(&mut [0; 4]));
    }
}

impl KeyPart for str {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        out.text(self);
    }
}

impl KeyPart for String {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        out.text(self);
    }
}

impl KeyPart for [u8] {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        out.bytes(self);
    }
}

impl<const N: usize> KeyPart for [u8; N] {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        out.bytes(self);
    }
}

impl KeyPart for Vec<u8> {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        out.bytes(self);
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        let Some(value) = self else { return out.absent() };
        let start = out.out.len();
        value.encode(out);
        // `Some(None)` is no `None`: it has one mark more. So `Some` changes nothing but values that are marks alone, and
        // no two of them become one.
        let written = out.out.get(start..).unwrap_or_default();
        if !written.is_empty() && written.split(ABSENT).all(str::is_empty) {
            out.absent();
        }
    }
}

macro_rules! pointers {
    ($($pointer:ty)*) => {$(
        impl<T: KeyPart + ?Sized> KeyPart for $pointer {
            fn encode(&self, out: &mut KeyWriter<'_>) {
                (**self).encode(out);
            }
        }
    )*};
}

pointers! { &T &mut T Box<T> Rc<T> Arc<T> }

impl<T: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, T> {
    fn encode(&self, out: &mut KeyWriter<'_>) {
        (**self).encode(out);
    }
}

/// Percent-encodes all but plain printable ASCII. The exceptions inside it: `%` itself, the marks around values, the
/// braces that Redis Cluster reads as a hash tag, and blanks, which hide at the end of a line.
pub(crate) fn encode(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'<' | b'>' | b'{' | b'}') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fmt::Debug;
    use std::hash::Hash;

    use super::*;

    fn written(value: &impl KeyPart) -> String {
        let mut text = String::new();
        value.encode(&mut KeyWriter::into(&mut text));
        text
    }

    /// Values whose type writes marks of its own, as a type of a user's may.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Marks(Vec<Option<u8>>);

    impl KeyPart for Marks {
        fn encode(&self, out: &mut KeyWriter<'_>) {
            for sign in &self.0 {
                match sign {
                    Some(byte) => out.bytes(&[*byte]),
                    None => out.absent(),
                }
            }
        }
    }

    #[test]
    fn an_option_in_an_option_keeps_its_plain_values() {
        assert_eq!(written(&None::<Option<u8>>), "%-");
        assert_eq!(written(&Some(None::<u8>)), "%-%-");
        assert_eq!(written(&Some(Some(None::<u8>))), "%-%-%-");
        assert_eq!(written(&Some(Some(5))), "5");
        assert_eq!(written(&Some(Box::new(None::<&str>))), "%-%-");
        assert_eq!(written(&Some(Some(""))), "");
        assert_eq!(written(&Some(Some("%-"))), "%25-");
    }

    #[test]
    fn different_options_never_write_the_same() {
        fn note<T: KeyPart + Clone + Debug + PartialEq>(seen: &mut HashMap<String, T>, value: &T) {
            let text = written(value);
            if let Some(earlier) = seen.insert(text.clone(), value.clone()) {
                assert_eq!(earlier, *value, "{text}");
            }
        }
        let mut random = fastrand::Rng::with_seed(22);
        let (mut texts, mut marks) = (HashMap::new(), HashMap::new());
        for _ in 0..20_000 {
            let signs: Vec<_> = (0..random.usize(0..4))
                .map(|_| random.choice([None, None, Some(b'%'), Some(b'-'), Some(b'2'), Some(0xff)]).flatten())
                .collect();
            let bytes: Vec<u8> = signs.iter().flatten().copied().collect();
            let depth = random.u8(0..4);
            note(&mut texts, &nested(depth, bytes));
            note(&mut marks, &nested(depth, Marks(signs)));
        }
    }

    /// `None` inside of `depth` `Some`s, or the value.
    fn nested<T>(depth: u8, value: T) -> Option<Option<Option<T>>> {
        match depth {
            0 => None,
            1 => Some(None),
            2 => Some(Some(None)),
            _ => Some(Some(Some(value))),
        }
    }
}
