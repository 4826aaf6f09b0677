//! The name of a lock in Redis, and the names of the keys that belong to it.

use std::io::Write;

use ::redis::{RedisWrite, ToRedisArgs};
use dlock_contract::LockKey;

/// The name of a lock: `dl1:{shop:stock:<42>}`. The braces put all keys of one lock into one hash slot; the part before
/// them is the same for all, so that an ACL can say `~dl1:*`. A [literal](LockKey::literal) name is used as it is.
pub struct LockName<'a>(pub &'a LockKey);

impl ToRedisArgs for LockName<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let full = self.0.as_str();
        match full.strip_prefix("dl1:") {
            Some(rest) => put(out, &[b"dl1:{", rest.as_bytes(), b"}"]),
            None => put(out, &[full.as_bytes()]),
        }
    }
}

/// The name of a lock as text, for an operator.
pub fn in_redis(key: &LockKey) -> String {
    let full = key.as_str();
    full.strip_prefix("dl1:").map_or_else(|| full.to_owned(), |rest| format!("dl1:{{{rest}}}"))
}

/// The name of a key that belongs to a lock, as the scripts make it.
#[must_use]
pub fn beside(name: &[u8], ending: &str) -> Vec<u8> {
    let (before, after): (&[u8], &[u8]) = match name {
        [b'd', b'l', b'1', b':', ..] => (b"", b""),
        name if name.contains(&b'{') => (b"dl1:t:", b""),
        _ => (b"dl1:l:{", b"}"),
    };
    [before, name, after, ending.as_bytes()].concat()
}

pub(crate) fn put<W: ?Sized + RedisWrite>(out: &mut W, parts: &[&[u8]]) {
    let mut writer = out.writer_for_next_arg();
    for part in parts {
        // Writing into a vector cannot fail.
        let _ = writer.write_all(part);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ::redis::cluster_routing::Slot;
    use dlock_contract::Key;
    use proptest::prelude::*;

    use super::*;

    /// Any text, and texts that differ in an escape or a separator alone.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let parts = prop::sample::select(vec!["a", "{", "}", "%7B", "%257B", ":q", "<", ">", "%"]);
        let alike = prop::collection::vec(parts, 0..4).prop_map(|parts| parts.concat());
        prop::collection::vec(prop_oneof![any::<String>(), alike], 20)
    }

    proptest! {
        #[test]
        fn each_key_has_a_name_of_its_own_in_the_slot_of_its_text(texts in texts()) {
            let mut names = HashMap::new();
            for text in texts {
                let key = LockKey::new("shop", Key::rendered(&text)).unwrap();
                let name = LockName(&key).to_redis_args().remove(0);
                prop_assert!(name.iter().all(u8::is_ascii_graphic), "{key:?}");
                let tag = key.as_str().strip_prefix("dl1:").unwrap();
                prop_assert_eq!(Slot::for_key(&name), Slot::for_key(tag), "{:?}", key);
                for name in [name.clone(), beside(&name, ":q"), beside(&name, ":a")] {
                    let other = names.insert(name, key.clone()).filter(|other| *other != key);
                    prop_assert!(other.is_none(), "{key:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn an_operator_is_shown_the_name_that_is_sent() {
        let key = LockKey::new("shop", dlock_contract::Key::text("stock:").value(&42)).unwrap();
        for key in [key.clone(), key.literal().unwrap()] {
            assert_eq!(LockName(&key).to_redis_args(), [in_redis(&key).into_bytes()]);
        }
        assert_eq!(in_redis(&key), "dl1:{shop:stock:<42>}");
    }

    #[test]
    fn all_keys_of_a_lock_have_our_prefix_and_are_in_its_slot() {
        let names = ["dl1:{shop:stock:<42>}", "stock:42", "{stock:42}", "{stock}:42", "stock:42:q", "{stock:42}:q"];
        let mut all = std::collections::HashSet::new();
        for name in names {
            for ending in [":q", ":a", ":r", ":note"] {
                let own = beside(name.as_bytes(), ending);
                assert!(own.starts_with(b"dl1:") && Slot::for_key(&own) == Slot::for_key(name), "{name}");
                assert!(all.insert(own), "{name}{ending}");
            }
        }
        assert!(crate::scripts::queue::BESIDE.contains("'dl1:t:'..l or 'dl1:l:{'..l..'}'"));
    }
}
