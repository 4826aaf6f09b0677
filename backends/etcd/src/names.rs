//! The names of a lock's keys in etcd: the storage format.
//!
//! Each contender has a key below `<lock>/`, on a lease. The name has the lock mode, so a transaction can compare that
//! no key of a conflicting mode is there:
//!
//! | lock mode | key below `<lock>/` |
//! | --- | --- |
//! | exclusive | `<lease>-<number>`; foreign clients' keys count as exclusive |
//! | read, write | `~rw-r-<lease>-<number>`, `~rw-w-<lease>-<number>` |
//! | permits | `~p<limit>-<lease>-<number>`, and for each holder `~p<limit>.<slot>`, whose value is `<lease>-<number> <hold id>` |
//!
//! The value is `<hold id> <note>`. The name does not contain the owner: claims use the same few numbers again and again.
//! The server keeps every name until it is compacted, and passes over all of them when it reads the keys of a lock.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

use dlock_contract::{Claim, HoldId, LockKey, Mode, Note, Result};
use etcd_client::KeyValue;

use super::key_range::KeyRange;

/// The prefix of the epoch keys.
pub(super) const EPOCHS: &str = "dl1-epoch/";

/// How the keys of locks are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// dlock's own names. The keys of one lock are never among the keys of another.
    Own,
    /// The plain text of the key, as foreign clients write it.
    Literal,
}

impl Layout {
    /// The lock that this key names.
    pub(super) fn lock(self, key: &LockKey) -> Result<LockKey> {
        match self {
            Self::Own => Ok(key.clone()),
            Self::Literal => key.literal(),
        }
    }

    pub(super) fn range(self, key: &LockKey) -> Result<LockRange> {
        Ok(LockRange { prefix: self.prefix(key)?.into() })
    }

    /// The text with which all keys of the lock begin.
    pub(super) fn prefix(self, key: &LockKey) -> Result<String> {
        let mut prefix = match self {
            // Otherwise the keys of `a/b` would be among those of `a`. The name has no other `%2F`, because its own `%` is
            // encoded.
            Self::Own => key.as_str().replace('/', "%2F"),
            Self::Literal => key.literal()?.as_str().to_owned(),
        };
        prefix.push('/');
        Ok(prefix)
    }

    /// The lock to which this key of the store belongs, and the first key after all keys of that lock.
    pub(super) fn lock_of(self, key: &[u8]) -> Option<(LockKey, Vec<u8>)> {
        let key = std::str::from_utf8(key).ok()?;
        let (name, lock) = match self {
            Self::Own => {
                let (name, _) = key.split_once('/')?;
                (name, LockKey::from_stored(&name.replace("%2F", "/"))?)
            }
            Self::Literal => {
                if key.starts_with(EPOCHS) {
                    return None;
                }
                // Other programs may have keys in the store. A lock's key ends in a lease.
                let (name, own) = key.rsplit_once('/')?;
                let (_, place) = kind_of(own);
                let (lease, _) = place.split_once('-').unwrap_or((place, ""));
                if !is_hex(lease, 1..=16) {
                    return None;
                }
                (name, (!name.starts_with("dl1:")).then(|| LockKey(name.into()))?)
            }
        };
        Some((lock, format!("{name}0").into_bytes()))
    }
}

/// The range of all keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct LockRange {
    prefix: Arc<str>,
}

/// The kinds of keys in a lock's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// A contender for the exclusive lock, or a foreign client's key.
    Exclusive,
    Read,
    Write,
    /// A contender for one of this many permits.
    Permit(u32),
    /// The mark of a permit's slot.
    Slot(u32),
}

impl LockRange {
    /// The text with which all keys of the lock begin.
    pub(super) fn prefix(&self) -> &Arc<str> {
        &self.prefix
    }

    pub(super) fn key(&self, mode: Mode, place: &str) -> Vec<u8> {
        // Joined and not formatted, because each attempt makes several names, and formatting takes several times as long.
        [&self.prefix, &*mode_prefix(mode), place].concat().into_bytes()
    }

    pub(super) fn slot_key(&self, permits: u32, slot: u32) -> Vec<u8> {
        format!("{}~p{permits:08x}.{slot:08x}", self.prefix).into_bytes()
    }

    pub(super) fn all(&self) -> KeyRange {
        self.key_range("")
    }

    /// The keys of contenders with this mode.
    pub(super) fn contenders(&self, mode: Mode) -> KeyRange {
        self.key_range(&mode_prefix(mode))
    }

    /// The marks of the slots that are taken.
    pub(super) fn slots(&self, permits: u32) -> KeyRange {
        self.key_range(&format!("~p{permits:08x}."))
    }

    /// The ranges in which keys of conflicting modes would be.
    pub(super) fn conflicting(&self, mode: Mode) -> Vec<KeyRange> {
        let family = match mode {
            Mode::Exclusive => return vec![self.key_range("~")],
            Mode::Read | Mode::Write => "~rw-".to_owned(),
            Mode::Permits(most) => format!("~p{most:08x}"),
        };
        let (all, family) = (self.all(), self.key_range(&family));
        vec![KeyRange { from: all.from, to: family.from }, KeyRange { from: family.to, to: all.to }]
    }

    fn key_range(&self, beginning: &str) -> KeyRange {
        KeyRange::of([&self.prefix, beginning].concat())
    }

    /// The kind of this key of the range, and the part of its name that identifies its owner.
    pub(super) fn read<'a>(&self, key: &'a [u8]) -> (KeyKind, &'a str) {
        let own = key.strip_prefix(self.prefix.as_bytes()).unwrap_or_default();
        kind_of(std::str::from_utf8(own).unwrap_or_default())
    }
}

fn mode_prefix(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => String::new(),
        Mode::Read => "~rw-r-".to_owned(),
        Mode::Write => "~rw-w-".to_owned(),
        Mode::Permits(most) => format!("~p{most:08x}-"),
    }
}

fn kind_of(own: &str) -> (KeyKind, &str) {
    if let Some(place) = own.strip_prefix("~rw-r-") {
        return (KeyKind::Read, place);
    }
    if let Some(place) = own.strip_prefix("~rw-w-") {
        return (KeyKind::Write, place);
    }
    let permit = own.strip_prefix("~p").and_then(|own| own.split_at_checked(8));
    if let Some((most, rest)) = permit
        && let Ok(most) = u32::from_str_radix(most, 16)
    {
        if let Some(place) = rest.strip_prefix('-') {
            return (KeyKind::Permit(most), place);
        }
        let slot = rest.strip_prefix('.').and_then(|slot| u32::from_str_radix(slot, 16).ok());
        if let Some(slot) = slot {
            return (KeyKind::Slot(slot), "");
        }
    }
    (KeyKind::Exclusive, own)
}

/// The lease in the name of a key that dlock wrote. Foreign clients' keys end in a lease alone, as those of Go's `Mutex`, or
/// in other words.
pub(super) fn lease_of(place: &str) -> Option<i64> {
    let (lease, number) = place.split_once('-')?;
    let is_ours = is_hex(lease, 16..=16) && is_hex(number, 1..=8);
    i64::from_str_radix(lease, 16).ok().filter(|_| is_ours)
}

pub(super) fn place(lease: i64, number: u32) -> String {
    let mut place = String::with_capacity(25);
    let _ = write!(place, "{lease:016x}-{number:x}");
    place
}

/// The value of a claim's key. No other claim writes the same value.
pub(super) fn value_of(claim: &Claim) -> String {
    let mut value = String::with_capacity(17 + claim.note.as_str().len());
    let _ = write!(value, "{} {}", HoldId::of(&claim.owner), claim.note);
    value
}

/// The hold id and the note in a value.
pub(super) fn read_value(value: &[u8]) -> Option<(HoldId, Note)> {
    let text = String::from_utf8_lossy(value);
    let (id, note) = text.split_once(' ')?;
    Some((id.parse().ok()?, Note::from_stored(note)))
}

fn is_hex(part: &str, digits: RangeInclusive<usize>) -> bool {
    digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The note of a contender's key.
pub(super) fn note_of(range: &LockRange, key: &KeyValue) -> Note {
    let ours = lease_of(range.read(key.key()).1).and_then(|_| read_value(key.value()));
    ours.map_or_else(|| Note::from_stored(Note::FOREIGN_CLIENT), |(_, note)| note)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use dlock_contract::Key;
    use proptest::prelude::*;

    use super::*;

    const MODES: [Mode; 5] = [Mode::Exclusive, Mode::Read, Mode::Write, Mode::permits(2), Mode::permits(300)];

    fn lock(text: &'static str) -> LockKey {
        LockKey::new("shop", Key::text(text)).unwrap()
    }

    fn is_in(key_range: &KeyRange, key: &[u8]) -> bool {
        key_range.from.as_slice() <= key && key < key_range.to.as_slice()
    }

    /// Any text, and texts that differ in an escape or a separator alone.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let parts = prop::sample::select(vec!["a", "/", "%2F", "%252F", "0", "<", ">", "~", "%"]);
        let alike = prop::collection::vec(parts, 0..4).prop_map(|parts| parts.concat());
        prop::collection::vec(prop_oneof![any::<String>(), alike], 20)
    }

    proptest! {
        #[test]
        fn each_key_has_a_range_of_its_own(texts in texts()) {
            let mut keys = HashMap::new();
            for text in texts {
                let key = LockKey::new("shop", Key::rendered(&text)).unwrap();
                let range = Layout::Own.range(&key).unwrap();
                let own = range.key(Mode::Exclusive, &place(7, 0xab));
                prop_assert!(own.iter().all(u8::is_ascii_graphic), "{key:?}");
                prop_assert_eq!(Layout::Own.lock_of(&own), Some((key.clone(), range.all().to)));
                keys.insert(key, (range.all(), own));
            }
            for (key, (range, _)) in &keys {
                let inside = keys.iter().filter(|(_, (_, own))| is_in(range, own));
                prop_assert_eq!(inside.map(|(key, _)| key).collect::<Vec<_>>(), [key]);
            }
        }
    }

    #[test]
    fn a_key_is_among_the_others_of_exactly_the_modes_that_do_not_mix_with_it() {
        let range = Layout::Own.range(&lock("k")).unwrap();
        let place = place(7, 0xab);
        for held in MODES {
            let mut keys = vec![range.key(held, &place)];
            if let Mode::Permits(most) = held {
                keys.push(range.slot_key(most.get(), 1));
            }
            for key in &keys {
                assert!(is_in(&range.all(), key));
                for asked in MODES {
                    let among = range.conflicting(asked).iter().any(|key_range| is_in(key_range, key));
                    assert_eq!(among, !held.mixes_with(asked), "{held:?} for {asked:?}");
                }
            }
        }
        // A foreign client's key.
        let foreign = format!("{}694d8f1e2a3b4c5d", range.prefix()).into_bytes();
        for asked in MODES {
            assert_eq!(
                range.conflicting(asked).iter().any(|key_range| is_in(key_range, &foreign)),
                asked != Mode::Exclusive
            );
        }
    }

    #[test]
    fn a_key_tells_what_it_is_and_whose() {
        let range = Layout::Own.range(&lock("a/b")).unwrap();
        assert_eq!(&**range.prefix(), "dl1:shop:a%2Fb/");
        let kinds = [KeyKind::Exclusive, KeyKind::Read, KeyKind::Write, KeyKind::Permit(2), KeyKind::Permit(300)];
        for (mode, expected) in MODES.into_iter().zip(kinds) {
            let key = range.key(mode, &place(7, 300));
            let (kind, place) = range.read(&key);
            assert_eq!((kind, lease_of(place).unwrap()), (expected, 7));
        }
        assert_eq!(range.read(&range.slot_key(300, 17)).0, KeyKind::Slot(17));
        for foreign in ["694d8f1e2a3b4c5d", "x", "", "~", "~p1", "~p0000000g-x", "7-ab"] {
            let key = format!("{}{foreign}", range.prefix());
            let (kind, place) = range.read(key.as_bytes());
            assert!(kind == KeyKind::Exclusive && lease_of(place).is_none(), "{foreign}");
        }
    }

    #[test]
    fn the_lock_of_a_key_is_found_in_both_layouts() {
        for (layout, name) in [(Layout::Own, "dl1:shop:a/b"), (Layout::Literal, "a/b")] {
            let range = layout.range(&lock("a/b")).unwrap();
            for mode in MODES {
                let (found, end) = layout.lock_of(&range.key(mode, &place(7, 300))).unwrap();
                assert_eq!((found.as_str(), end), (name, range.all().to));
            }
        }
        assert_eq!(Layout::Literal.lock_of(b"a/b/694d8f1e2a3b4c5d").unwrap().0.as_str(), "a/b");
        for other in ["config", "a/config", "a/", "dl1-epoch/0000000000000007/ab"] {
            assert!(Layout::Literal.lock_of(other.as_bytes()).is_none(), "{other}");
        }
    }
}
