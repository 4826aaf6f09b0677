//! The flags and values of the keys: flags that Consul's own tools know, the holder's note, and the count of permits.

use std::collections::BTreeMap;

use dlock_contract::{Claim, HoldId, Note};
use serde::{Deserialize, Serialize};

/// The flags of an exclusive lock's key, as Consul's own tools set them.
pub(crate) const LOCK: u64 = 0x2ddc_cbc0_58a5_0c18;

/// The flags of a semaphore's keys, as Consul's own tools set them.
pub(crate) const SEMAPHORE: u64 = 0xe0f6_9a2b_aa41_4de0;

/// The value of a held key: the hold's id, slot and note. It never contains the owner, which is a secret.
pub(crate) struct HoldValue {
    pub(crate) id: HoldId,
    pub(crate) slot: Option<u32>,
    pub(crate) note: Note,
}

impl HoldValue {
    pub(crate) fn of(claim: &Claim, slot: Option<u32>) -> Self {
        Self { id: HoldId::of(&claim.owner), slot, note: claim.note.clone() }
    }

    /// The note in a held key.
    pub(crate) fn note_of(text: &str) -> Note {
        Self::read(text).map_or_else(|| Note::from_stored(Note::FOREIGN_CLIENT), |hold_value| hold_value.note)
    }

    /// `dlock 0123456789abcdef - NOTE`, with the slot of a permit in the place of the hyphen.
    pub(crate) fn to_text(&self) -> String {
        let slot = self.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
        format!("dlock {} {slot} {}", self.id, self.note.as_str())
    }

    /// Reads a value. `None`: a foreign client has written it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("dlock ")?.splitn(3, ' ');
        let id = parts.next()?.parse().ok()?;
        let slot = match parts.next()? {
            "-" => None,
            slot => Some(slot.parse().ok()?),
        };
        Some(Self { id, slot, note: Note::from_stored(parts.next()?) })
    }
}

/// The count of permits, as Consul's own tools write it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PermitCount {
    pub(crate) limit: u32,
    /// The sessions that have a permit.
    pub(crate) holders: BTreeMap<String, bool>,
}

impl PermitCount {
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_contract::{Key, LockKey};

    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_holds_no_owner() {
        let key = LockKey::new("shop", Key::text("k")).unwrap();
        let claim = Claim::new(key, Duration::from_secs(10), "site").unwrap();
        for slot in [None, Some(3)] {
            let text = HoldValue::of(&claim, slot).to_text();
            assert!(!text.contains(&claim.owner.to_hex()), "{text}");
            let read = HoldValue::read(&text).unwrap();
            assert_eq!((read.id, read.slot, read.note), (HoldId::of(&claim.owner), slot, claim.note.clone()));
        }
        assert!(HoldValue::read("").is_none() && HoldValue::read("dlock x - y").is_none());
    }

    #[test]
    fn a_count_is_what_go_writes() {
        let count = PermitCount { limit: 2, holders: BTreeMap::from([("b".into(), true), ("a".into(), true)]) };
        assert_eq!(count.to_text(), r#"{"Limit":2,"Holders":{"a":true,"b":true}}"#);
    }
}
