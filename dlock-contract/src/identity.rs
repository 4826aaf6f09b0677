//! Which lock a key is in a store.

use crate::key::LockKey;

/// Which lock a key is in a store, and the lock's names there.
///
/// It is not the key: a claim keeps the key that its caller gave. A store that shares its names with other programs may
/// have one lock for two keys, and a pair of stores has two names for one lock.
#[derive(Clone, Debug)]
pub struct Identity {
    lock: LockKey,
    names: Vec<String>,
}

impl Identity {
    /// The lock of this key, and of no other key, with the key itself as its name in the store.
    #[must_use]
    pub fn of(key: &LockKey) -> Self {
        Self { lock: key.clone(), names: Vec::new() }
    }

    /// Adds a name that the lock has in the store, as an operator would paste it into the store's own tools. After
    /// that, the key itself is not among the names.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// The lock: keys of equal locks are one lock. For comparing only; a request is always about a key.
    #[must_use]
    pub const fn lock(&self) -> &LockKey {
        &self.lock
    }

    /// The names of the lock in the store; at least one.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        if self.names.is_empty() { vec![self.lock.as_str().to_owned()] } else { self.names.clone() }
    }

    /// The lock alone.
    #[must_use]
    pub fn into_lock(self) -> LockKey {
        self.lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn a_lock_without_another_name_has_its_key_as_the_name() {
        let key = LockKey::new("shop", Key::text("stock:").value(&42)).unwrap();
        let plain = Identity::of(&key);
        assert_eq!((plain.lock(), plain.names()), (&key, vec!["dl1:shop:stock:<42>".to_owned()]));
        let named = plain.named("dl1:{shop:stock:<42>}");
        assert_eq!((named.names(), named.into_lock()), (vec!["dl1:{shop:stock:<42>}".to_owned()], key));
    }
}
