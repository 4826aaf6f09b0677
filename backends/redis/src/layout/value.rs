//! The value of a lock in Redis, and the entry of a waiter. Both are written straight into the request.

use ::redis::{RedisWrite, ToRedisArgs};
use dlock_contract::{Claim, Note, Owner};

use crate::layout::name::put;

/// The end of the value of a lock with waiters. Without it a release does not read the wait queue.
pub const MARK: &str = " +line";

/// The value of a lock: the owner in 32 hexadecimal digits, a blank, the note.
pub(crate) struct LockValue<'a>(pub(crate) &'a Claim);

/// An entry of the wait queue: the process, for how long a handed-over lock is granted in ms, and the value that it
/// would have.
pub(crate) struct QueueEntry<'a> {
    pub(crate) process: &'a str,
    pub(crate) grant_ms: u64,
    pub(crate) claim: &'a Claim,
}

impl ToRedisArgs for LockValue<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        put(out, &[&hex(&self.0.owner), b" ", self.0.note.as_str().as_bytes()]);
    }
}

impl ToRedisArgs for QueueEntry<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let grant = self.grant_ms.to_string();
        let note = self.claim.note.as_str().as_bytes();
        put(out, &[self.process.as_bytes(), b" ", grant.as_bytes(), b" ", &hex(&self.claim.owner), b" ", note]);
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

/// The owner at the beginning of a value; `None` if dlock did not write the value.
pub(crate) fn owner_of(value: &[u8]) -> Option<Owner> {
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

/// Whether the value is a lock of dlock's. All its notes begin so; a foreign client's value may begin with digits and a
/// blank too.
pub fn is_ours(value: &[u8]) -> bool {
    owner_of(value).is_some() && value.get(33..).is_some_and(|note| note.starts_with(b"h="))
}

/// The note in a value: never the owner, which is a secret.
pub fn note_of(value: &[u8]) -> Option<Note> {
    owner_of(value)?;
    let note = String::from_utf8_lossy(&value[33..]);
    Some(Note::from_stored(note.strip_suffix(MARK).unwrap_or(&note)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::name::LockName;
    use dlock_contract::{Key, LockKey};
    use std::time::Duration;

    #[test]
    fn a_value_is_read_back_as_it_was_written() {
        let key = LockKey::new("shop", Key::text("stock:").value(&42)).unwrap();
        let claim = Claim::new(key, Duration::from_secs(1), "shop::deduct").unwrap();
        assert_eq!(LockName(&claim.key).to_redis_args(), [b"dl1:{shop:stock:<42>}"]);
        let mut value = LockValue(&claim).to_redis_args().remove(0);
        assert_eq!(owner_of(&value), Some(claim.owner));
        assert_eq!(note_of(&value).unwrap(), claim.note);
        value.extend(MARK.as_bytes());
        assert_eq!(note_of(&value).unwrap(), claim.note);
        assert_eq!(&value[..32], claim.owner.to_hex().as_bytes());
    }

    #[test]
    fn foreign_values_are_not_taken_for_ours() {
        for foreign in
            ["", "1", &"a".repeat(32), &format!("{}x note", "a".repeat(32)), &format!("{} note", "g".repeat(32))]
        {
            assert_eq!(owner_of(foreign.as_bytes()), None, "{foreign}");
            assert_eq!(note_of(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
