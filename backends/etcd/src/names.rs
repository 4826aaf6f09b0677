//! The names of a lock's keys in etcd, which are its storage format.
//!
//! Each contender has a key below `<lock>/`, on a lease. Its name says the family of its lock mode, so a transaction can
//! compare that no other family is there:
//!
//! | lock mode | key below `<lock>/` |
//! | --- | --- |
//! | exclusive | `<lease>-<owner>`; other tools' keys count as exclusive |
//! | read, write | `~rw-r-<lease>-<owner>`, `~rw-w-<lease>-<owner>` |
//! | permits | `~p<number>-<lease>-<owner>`, and for each holder `~p<number>.<slot>`, whose value is `<lease>-<owner>` |

use std::ops::RangeInclusive;

use dlock_contract::{LockKey, Mode, Owner, Result};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOp};

/// How locks are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Names of dlock's own, in which no lock lies within another.
    Own,
    /// The plain text of the key, as the users of other tools write it.
    Literal,
}

impl Layout {
    /// The lock that a key is.
    pub(super) fn lock(self, key: &LockKey) -> Result<LockKey> {
        match self {
            Self::Own => Ok(key.clone()),
            Self::Literal => key.literal(),
        }
    }

    pub(super) fn line(self, key: &LockKey) -> Result<Line> {
        let lock = self.lock(key)?;
        Ok(Line {
            name: match self {
                // The keys of one lock must not be among those of another, as with `a` and `a/b`. The name has no other
                // `%2F`, because its own `%` is encoded.
                Self::Own => lock.as_str().replace('/', "%2F"),
                Self::Literal => lock.as_str().to_owned(),
            },
        })
    }

    /// The lock to which this key of the store belongs, and the first key behind all of that lock's.
    pub(super) fn lock_of(self, key: &[u8]) -> Option<(LockKey, Vec<u8>)> {
        let key = std::str::from_utf8(key).ok()?;
        let (name, lock) = match self {
            Self::Own => {
                let (name, _) = key.split_once('/')?;
                (name, LockKey::from_stored(&name.replace("%2F", "/"))?)
            }
            Self::Literal => {
                // Anything may be in the store. A lock's key ends in a lease.
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

/// All keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct Line {
    name: String,
}

/// What a key of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of an exclusive lock, or of another tool.
    Exclusive,
    Read,
    Write,
    /// A contender for one of so many permits.
    Permit(u32),
    /// The mark of a permit's slot.
    Slot(u32),
}

impl Line {
    /// What all keys of the lock begin with.
    pub(super) fn start(&self) -> String {
        format!("{}/", self.name)
    }

    pub(super) fn key(&self, mode: Mode, place: &str) -> Vec<u8> {
        format!("{}/{}{place}", self.name, mark(mode)).into_bytes()
    }

    pub(super) fn slot_key(&self, permits: u32, slot: u32) -> Vec<u8> {
        format!("{}/~p{permits:08x}.{slot:08x}", self.name).into_bytes()
    }

    pub(super) fn all(&self) -> Span {
        self.span("")
    }

    /// The keys of contenders with this mode.
    pub(super) fn of(&self, mode: Mode) -> Span {
        self.span(&mark(mode))
    }

    /// The marks of the slots that are taken.
    pub(super) fn slots(&self, permits: u32) -> Span {
        self.span(&format!("~p{permits:08x}."))
    }

    /// Where keys of other families would be.
    pub(super) fn others(&self, mode: Mode) -> Vec<Span> {
        let family = match mode {
            Mode::Exclusive => return vec![self.span("~")],
            Mode::Read | Mode::Write => "~rw-".to_owned(),
            Mode::Permits(most) => format!("~p{most:08x}"),
        };
        let (all, family) = (self.all(), self.span(&family));
        vec![Span { from: all.from, to: family.from }, Span { from: family.to, to: all.to }]
    }

    fn span(&self, mark: &str) -> Span {
        let from = format!("{}/{mark}", self.name).into_bytes();
        let mut to = from.clone();
        // The first key after all keys that begin so. The last byte is ASCII.
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        Span { from, to }
    }

    /// What this key of the line is, and the text that says whose.
    pub(super) fn read<'a>(&self, key: &'a [u8]) -> (Kind, &'a str) {
        let own = key.strip_prefix(self.start().as_bytes()).unwrap_or_default();
        kind_of(std::str::from_utf8(own).unwrap_or_default())
    }
}

fn mark(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => String::new(),
        Mode::Read => "~rw-r-".to_owned(),
        Mode::Write => "~rw-w-".to_owned(),
        Mode::Permits(most) => format!("~p{most:08x}-"),
    }
}

fn kind_of(own: &str) -> (Kind, &str) {
    if let Some(place) = own.strip_prefix("~rw-r-") {
        return (Kind::Read, place);
    }
    if let Some(place) = own.strip_prefix("~rw-w-") {
        return (Kind::Write, place);
    }
    let permit = own.strip_prefix("~p").and_then(|own| own.split_at_checked(8));
    if let Some((most, rest)) = permit
        && let Ok(most) = u32::from_str_radix(most, 16)
    {
        if let Some(place) = rest.strip_prefix('-') {
            return (Kind::Permit(most), place);
        }
        let slot = rest.strip_prefix('.').and_then(|slot| u32::from_str_radix(slot, 16).ok());
        if let Some(slot) = slot {
            return (Kind::Slot(slot), "");
        }
    }
    (Kind::Exclusive, own)
}

/// The lease and the owner that a dlock wrote. Other tools' keys end in their lease alone, as those of Go's `Mutex`, or
/// in words of their own.
pub(super) fn owner_of(place: &str) -> Option<(i64, Owner)> {
    let (lease, owner) = place.split_once('-')?;
    let bytes = u128::from_str_radix(owner, 16).ok().filter(|_| is_hex(owner, 32..=32) && is_hex(lease, 16..=16))?;
    Some((i64::from_str_radix(lease, 16).ok()?, Owner::from_bytes(bytes.to_be_bytes())))
}

pub(super) fn place(lease: i64, owner: &Owner) -> String {
    format!("{lease:016x}-{}", owner.to_hex())
}

fn is_hex(part: &str, digits: RangeInclusive<usize>) -> bool {
    digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

impl Span {
    pub(super) fn options(&self) -> GetOptions {
        GetOptions::new().with_range(self.to.clone())
    }

    pub(super) fn get(&self, options: impl FnOnce(GetOptions) -> GetOptions) -> TxnOp {
        TxnOp::get(self.from.clone(), Some(options(self.options())))
    }

    /// Compares that no key is there.
    pub(super) fn is_empty(&self) -> Compare {
        Compare::create_revision(self.from.clone(), CompareOp::Equal, 0).with_range(self.to.clone())
    }
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;

    use super::*;

    const MODES: [Mode; 5] = [Mode::Exclusive, Mode::Read, Mode::Write, Mode::permits(2), Mode::permits(300)];

    fn lock(text: &'static str) -> LockKey {
        LockKey::new("shop", Key::text(text)).unwrap()
    }

    fn is_in(span: &Span, key: &[u8]) -> bool {
        span.from.as_slice() <= key && key < span.to.as_slice()
    }

    #[test]
    fn a_key_is_among_the_others_of_exactly_the_modes_that_do_not_mix_with_it() {
        let line = Layout::Own.line(&lock("k")).unwrap();
        let place = place(7, &Owner::from_bytes([0xab; 16]));
        for held in MODES {
            let mut keys = vec![line.key(held, &place)];
            if let Mode::Permits(most) = held {
                keys.push(line.slot_key(most.get(), 1));
            }
            for key in &keys {
                assert!(is_in(&line.all(), key));
                for asked in MODES {
                    let among = line.others(asked).iter().any(|span| is_in(span, key));
                    assert_eq!(among, !held.mixes_with(asked), "{held:?} for {asked:?}");
                }
            }
        }
        // Another tool's.
        let foreign = format!("{}694d8f1e2a3b4c5d", line.start()).into_bytes();
        for asked in MODES {
            assert_eq!(line.others(asked).iter().any(|span| is_in(span, &foreign)), asked != Mode::Exclusive);
        }
    }

    #[test]
    fn a_key_tells_what_it_is_and_whose() {
        let (line, owner) = (Layout::Own.line(&lock("a/b")).unwrap(), Owner::from_bytes([0xab; 16]));
        assert_eq!(line.start(), "dl1:shop:a%2Fb/");
        let kinds = [Kind::Exclusive, Kind::Read, Kind::Write, Kind::Permit(2), Kind::Permit(300)];
        for (mode, expected) in MODES.into_iter().zip(kinds) {
            let key = line.key(mode, &place(7, &owner));
            let (kind, place) = line.read(&key);
            assert_eq!((kind, owner_of(place).unwrap()), (expected, (7, owner)));
        }
        assert_eq!(line.read(&line.slot_key(300, 17)).0, Kind::Slot(17));
        for foreign in ["694d8f1e2a3b4c5d", "x", "", "~", "~p1", "~p0000000g-x", "7-ab"] {
            let key = format!("{}{foreign}", line.start());
            let (kind, place) = line.read(key.as_bytes());
            assert!(kind == Kind::Exclusive && owner_of(place).is_none(), "{foreign}");
        }
    }

    #[test]
    fn the_lock_of_a_key_is_found_in_both_layouts() {
        let owner = Owner::from_bytes([0xab; 16]);
        for (layout, name) in [(Layout::Own, "dl1:shop:a/b"), (Layout::Literal, "a/b")] {
            let line = layout.line(&lock("a/b")).unwrap();
            for mode in MODES {
                let (found, end) = layout.lock_of(&line.key(mode, &place(7, &owner))).unwrap();
                assert_eq!((found.as_str(), end), (name, line.all().to));
            }
        }
        assert_eq!(Layout::Literal.lock_of(b"a/b/694d8f1e2a3b4c5d").unwrap().0.as_str(), "a/b");
        for other in ["config", "a/config", "a/"] {
            assert!(Layout::Literal.lock_of(other.as_bytes()).is_none(), "{other}");
        }
    }
}
