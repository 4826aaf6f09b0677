//! Names and values as they stand in the server; written straight into the request, without strings in between.

use std::io::Write;

use ::redis::{RedisWrite, ToRedisArgs};
use dlock_contract::{Claim, Error, ErrorKind, LockKey, Note, Owner, Result};

use super::scripts::MARK;

/// The name of a lock: `dl1:{shop:stock:<42>}`. The braces put all keys of one lock into one hash slot; the part before
/// them is the same for all, so that an ACL can say `~dl1:*`. A [literal](LockKey::literal) name stands as it is.
pub struct Name<'a>(pub &'a LockKey);

/// The value of a lock: the owner in 32 hexadecimal digits, a blank, the note.
pub(super) struct Value<'a>(pub(super) &'a Claim);

/// A place in line: the process, for how long a handed-over lock is granted in ms, and the value that it would have.
pub(super) struct Entry<'a> {
    pub(super) process: &'a str,
    pub(super) grant_ms: u64,
    pub(super) claim: &'a Claim,
}

impl ToRedisArgs for Name<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let full = self.0.as_str();
        match full.strip_prefix("dl1:") {
            Some(rest) => put(out, &[b"dl1:{", rest.as_bytes(), b"}"]),
            None => put(out, &[full.as_bytes()]),
        }
    }
}

impl ToRedisArgs for Value<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        put(out, &[&hex(&self.0.owner), b" ", self.0.note.as_str().as_bytes()]);
    }
}

impl ToRedisArgs for Entry<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let grant = self.grant_ms.to_string();
        let note = self.claim.note.as_str().as_bytes();
        put(out, &[self.process.as_bytes(), b" ", grant.as_bytes(), b" ", &hex(&self.claim.owner), b" ", note]);
    }
}

/// The name of something that belongs to a lock, as the scripts make it.
pub(super) fn beside(name: &[u8], ending: &str) -> Vec<u8> {
    let (before, after): (&[u8], &[u8]) = match name {
        [b'd', b'l', b'1', b':', ..] => (b"", b""),
        name if name.contains(&b'{') => (b"dl1:t:", b""),
        _ => (b"dl1:l:{", b"}"),
    };
    [before, name, after, ending.as_bytes()].concat()
}

fn put<W: ?Sized + RedisWrite>(out: &mut W, parts: &[&[u8]]) {
    let mut writer = out.writer_for_next_arg();
    for part in parts {
        // Writing into a vector cannot fail.
        let _ = writer.write_all(part);
    }
}

fn hex(owner: &Owner) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; 32];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(owner.as_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    hex
}

/// The owner at the beginning of a value; `None` if the value has not our form.
pub(super) fn owner_of(value: &[u8]) -> Option<Owner> {
    let (digits, rest) = value.split_at_checked(32)?;
    if rest.first() != Some(&b' ') {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(Owner::from_bytes(bytes))
}

/// Is it a lock of dlock's? All our notes begin so; another tool may have digits and a blank of its own.
pub fn is_ours(value: &[u8]) -> bool {
    owner_of(value).is_some() && value.get(33..).is_some_and(|note| note.starts_with(b"h="))
}

/// The note in a value: never the owner, which is a secret.
pub fn note_of(value: &[u8]) -> Result<Note> {
    if owner_of(value).is_none() {
        return Err(conflict());
    }
    let note = String::from_utf8_lossy(&value[33..]);
    Ok(Note::from_stored(note.strip_suffix(MARK).unwrap_or(&note)))
}

/// What stands under the lock's name is no lock of this mode.
pub fn conflict() -> Error {
    Error::new(
        ErrorKind::KeyConflict,
        "under the lock's name in Redis stands a lock of another mode, or something that dlock did not write",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;
    use std::time::Duration;

    #[test]
    fn a_value_is_read_back_as_it_was_written() {
        let key = LockKey::new("shop", Key::text("stock:").value(&42)).unwrap();
        let claim = Claim::new(key, Duration::from_secs(1), "shop::deduct").unwrap();
        assert_eq!(Name(&claim.key).to_redis_args(), [b"dl1:{shop:stock:<42>}"]);
        let mut value = Value(&claim).to_redis_args().remove(0);
        assert_eq!(owner_of(&value), Some(claim.owner));
        assert_eq!(note_of(&value).unwrap(), claim.note);
        value.extend(MARK.as_bytes());
        assert_eq!(note_of(&value).unwrap(), claim.note);
        assert_eq!(&value[..32], claim.owner.to_hex().as_bytes());
    }

    #[test]
    fn what_belongs_to_a_lock_is_ours_and_in_its_slot() {
        use ::redis::cluster_routing::Slot;
        let names = ["dl1:{shop:stock:<42>}", "stock:42", "{stock:42}", "{stock}:42", "stock:42:q", "{stock:42}:q"];
        let mut all = std::collections::HashSet::new();
        for name in names {
            for ending in [":q", ":a", ":r", ":note"] {
                let own = beside(name.as_bytes(), ending);
                assert!(own.starts_with(b"dl1:") && Slot::for_key(&own) == Slot::for_key(name), "{name}");
                assert!(all.insert(own), "{name}{ending}");
            }
        }
        assert!(super::super::scripts::BESIDE.contains("'dl1:t:'..l or 'dl1:l:{'..l..'}'"));
    }

    #[test]
    fn foreign_values_are_not_taken_for_ours() {
        for foreign in
            ["", "1", &"a".repeat(32), &format!("{}x note", "a".repeat(32)), &format!("{} note", "g".repeat(32))]
        {
            assert_eq!(owner_of(foreign.as_bytes()), None, "{foreign}");
            assert_eq!(*note_of(foreign.as_bytes()).unwrap_err().kind(), ErrorKind::KeyConflict);
        }
    }
}
