//! The id of a hold, which is no secret.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::owner::Owner;

/// Names one hold without the power to end it: the first 8 bytes of the SHA-256 of its owner, as 16 hexadecimal digits.
///
/// The owner itself is a secret, since it is enough to release the lock. A fencing token cannot name a hold: some
/// stores have none, and Redis keeps none beside the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId([u8; 8]);

impl HoldId {
    /// The id of this owner's hold.
    #[must_use]
    pub fn of(owner: &Owner) -> Self {
        let mut id = [0; 8];
        id.copy_from_slice(&Sha256::digest(owner.as_bytes())[..8]);
        Self(id)
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HoldId({self})")
    }
}

impl FromStr for HoldId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
        let id = id.ok_or_else(|| Error::config("hold_id", "a hold id is 16 hexadecimal digits"))?;
        Ok(Self(id.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_id_is_frozen_short_and_no_owner() {
        let owner = Owner::from_bytes([7; 16]);
        let id = HoldId::of(&owner);
        assert_eq!(id.to_string(), "d761d406af2a4a5a");
        assert_eq!(id.to_string().parse::<HoldId>().unwrap(), id);
        assert!(!owner.to_hex().contains(&id.to_string()));
        for wrong in ["", "1", "+123456789abcdef", "123456789abcdefg", "00123456789abcdef"] {
            assert!(wrong.parse::<HoldId>().is_err(), "{wrong}");
        }
    }
}
