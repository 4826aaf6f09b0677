//! The slots of a cluster, and where each one's counter of tokens is.

use std::collections::HashMap;
use std::sync::LazyLock;

use ::redis::ToRedisArgs;
pub(crate) use ::redis::cluster_routing::Slot;
use dlock_contract::LockKey;

use crate::layout::name::LockName;

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;

/// For each slot the smallest number whose decimal digits hash to it: a tag that brings a name into that slot.
static TAGS: LazyLock<HashMap<Slot, u32>> = LazyLock::new(|| {
    let mut tags = HashMap::with_capacity(SLOTS);
    for number in 0.. {
        tags.entry(Slot::for_key(number.to_string())).or_insert(number);
        if tags.len() == SLOTS {
            break;
        }
    }
    tags
});

/// The number of each slot, which the client's type does not show.
static NUMBERS: LazyLock<HashMap<Slot, u16>> =
    LazyLock::new(|| (0..).map_while(|number| Some((Slot::new(number)?, number))).collect());

/// The number of a slot.
pub(crate) fn number_of(slot: Slot) -> u16 {
    NUMBERS.get(&slot).copied().unwrap_or_default()
}

/// The slot of a lock.
pub(crate) fn slot_of(key: &LockKey) -> Slot {
    Slot::for_key(LockName(key).to_redis_args().concat())
}

/// The counter of the fencing tokens of all locks in a slot: `dl1:fence:{tag}`. At most one for each slot.
pub(crate) fn fence(slot: Slot) -> String {
    format!("dl1:fence:{{{}}}", tag(slot))
}

/// The channel on which a process hears of the locks in a slot.
pub(crate) fn channel(process: &str, slot: Slot) -> String {
    format!("dl1:p:{process}:{{{}}}", tag(slot))
}

fn tag(slot: Slot) -> u32 {
    TAGS.get(&slot).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;

    #[test]
    fn each_slot_has_a_tag_that_leads_to_it() {
        for number in 0..16_384 {
            let slot = Slot::new(number).unwrap();
            assert_eq!(number_of(slot), number);
            assert_eq!(Slot::for_key(fence(slot)), slot);
            assert_eq!(Slot::for_key(channel("0123456789abcdef", slot)), slot);
        }
        // Every other implementation must compute the same slot.
        assert_eq!(tag(Slot::for_key("0")), 0);
        assert_eq!(Some(Slot::for_key("123456789")), Slot::new(12_739));
    }

    #[test]
    fn braces_in_a_key_do_not_choose_the_slot() {
        for text in ["a", "{a}", "}{", "{}", "a}b", "{user}:1"] {
            let key = LockKey::new("shop", Key::text("k:").value(text)).unwrap();
            let name = LockName(&key).to_redis_args().concat();
            // The slot depends on the whole encoded key, without the bytes that we put around it.
            let inner = &name[b"dl1:{".len()..name.len() - 1];
            assert!(!inner.contains(&b'{') && !inner.contains(&b'}'), "{text}");
            assert_eq!(slot_of(&key), Slot::for_key(inner), "{text}");
        }
    }
}
