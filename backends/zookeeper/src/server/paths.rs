//! The path of a lock: the node whose children are its queue.

use dlock_contract::{ErrorKind, HoldId, Identity, LockKey, Result};
use sha2::{Digest, Sha256};

use crate::server::cluster::{Cluster, is_plain};

/// The parent of all locks with dlock's own names.
const LOCKS: &str = "/dlock";

/// The parent of the records of broken holds. No namespace can contain `@`.
const BROKEN: &str = "/dlock/@broken";

/// The parent of the notes of the forms that are in use.
const FORMS: &str = "/dlock/@forms";

/// The node of a lock whose key is empty, since a node must have a name. No key is a lone `%`, which it would encode.
const EMPTY: &str = "%";

/// The name of the form of a store's locks.
pub(crate) fn form(literal: bool) -> &'static str {
    if literal { "literal" } else { "own" }
}

/// The paths of a store.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: String,
    literal: bool,
}

impl Paths {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self { root: cluster.root.clone(), literal: cluster.literal }
    }

    /// dlock's own names below the root.
    pub(crate) fn of_own_names() -> Self {
        Self { root: String::new(), literal: false }
    }

    /// Whether the locks have the names that foreign clients write.
    pub(crate) fn is_literal(&self) -> bool {
        self.literal
    }

    /// The path of a lock.
    pub(crate) fn lock(&self, key: &LockKey) -> Result<String> {
        if self.literal { self.literal(key) } else { Ok(self.own(key.as_str())) }
    }

    /// Which lock a key names. With `keys=literal`, several keys may name one lock.
    pub(crate) fn identify(&self, key: &LockKey) -> Result<Identity> {
        let path = self.lock(key)?;
        if self.literal { Ok(Identity::of(&LockKey(path.into()))) } else { Ok(Identity::of(key).named(path)) }
    }

    /// `/dlock/<namespace>/<two hex digits>/<name>`. The children of a node cannot be read page by page, so the locks are
    /// spread over buckets.
    fn own(&self, key: &str) -> String {
        let (namespace, name) = key.strip_prefix("dl1:").and_then(|rest| rest.split_once(':')).unwrap_or(("", key));
        let bucket = Sha256::digest(name.as_bytes())[0];
        format!("{}/{}", self.bucket(namespace, bucket), node_name(name))
    }

    /// One of the 256 parents of the locks of a namespace.
    pub(crate) fn bucket(&self, namespace: &str, bucket: u8) -> String {
        format!("{}{LOCKS}/{}/{bucket:02x}", self.root, node_name(namespace))
    }

    /// The key of the lock with this name in a bucket.
    pub(crate) fn key_of(namespace: &str, name: &str) -> Option<LockKey> {
        LockKey::check_namespace(namespace).ok()?;
        let name = if name == EMPTY { String::new() } else { name.replace("%2F", "/").replace("%2E", ".") };
        LockKey::from_stored(&format!("dl1:{namespace}:{name}"))
    }

    fn literal(&self, key: &LockKey) -> Result<String> {
        let name = key.literal()?;
        let name = name.as_str().strip_prefix('/').unwrap_or(name.as_str());
        let bad = |part: &str| part.is_empty() || part == "." || part == ".." || !part.chars().all(is_plain);
        let is_servers = self.root.is_empty() && name.split('/').next() == Some("zookeeper");
        if name.split('/').any(bad) || is_servers {
            let need = "a key whose plain text is a path of ZooKeeper".to_owned();
            let text = "the key is not a path: its parts must be names of nodes with slashes between, and the first must not be `zookeeper`";
            return Err(dlock_contract::Error::new(ErrorKind::Unsupported { need }, text).with_key(key.as_str()));
        }
        Ok(format!("{}/{name}", self.root))
    }

    /// The parent of the records of broken holds.
    pub(crate) fn broken(&self) -> String {
        format!("{}{BROKEN}", self.root)
    }

    /// The record of one broken hold.
    pub(crate) fn record(&self, id: HoldId) -> String {
        format!("{}/{id}", self.broken())
    }

    /// The parent of the nodes that test the account's rights.
    pub(crate) fn probe(&self) -> String {
        format!("{}{LOCKS}/@probe", self.root)
    }

    /// The note that programs with this chroot use this form.
    pub(crate) fn form_below(root: &str, form: &str) -> String {
        format!("{root}{FORMS}/{form}")
    }

    /// The chroot; empty for the root.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }
}

/// A name as the name of one node. The name's own `%` are encoded already, so no two names become the same.
fn node_name(name: &str) -> String {
    match name {
        "" => EMPTY.to_owned(),
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        name => name.replace('/', "%2F"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use dlock_contract::Key;
    use proptest::prelude::*;

    use super::*;

    fn paths(literal: bool) -> Paths {
        Paths { root: "/app".into(), literal }
    }

    #[test]
    fn the_paths_are_frozen_and_read_back() {
        let key = |namespace: &str, text: &'static str| LockKey::new(namespace, Key::text(text)).unwrap();
        for (key, path) in [
            (key("shop", "stock"), "/app/dlock/shop/08/stock"),
            (key("shop", "a/b c"), "/app/dlock/shop/c0/a%2Fb%20c"),
            (key(".", "."), "/app/dlock/%2E/cd/%2E"),
            (key("..", ".."), "/app/dlock/%2E%2E/5e/%2E%2E"),
        ] {
            let found = paths(false).lock(&key).unwrap();
            let (_, name) = found.rsplit_once('/').unwrap();
            let namespace = key.as_str().split(':').nth(1).unwrap();
            assert_eq!(Paths::key_of(namespace, name), Some(key.clone()), "{found}");
            assert_eq!(found, path);
        }
    }

    /// Any text, and texts that differ in an escape or a separator alone.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let parts = prop::sample::select(vec!["a", "/", "%2F", "%252F", ".", "%2E", "<", ">", "%"]);
        let alike = prop::collection::vec(parts, 0..4).prop_map(|parts| parts.concat());
        prop::collection::vec(prop_oneof![any::<String>(), alike], 20)
    }

    proptest! {
        #[test]
        fn each_key_has_a_path_of_its_own_that_the_server_takes(texts in texts()) {
            let mut keys = HashMap::new();
            for text in texts {
                let key = LockKey::new("shop", Key::rendered(&text)).unwrap();
                let path = paths(false).lock(&key).unwrap();
                let parts: Vec<_> = path.split('/').skip(1).collect();
                let is_node = |part: &&str| !part.is_empty() && !matches!(*part, "." | "..") && part.chars().all(is_plain);
                prop_assert!(parts.len() == 5 && parts.iter().all(is_node), "{path}");
                prop_assert_eq!(Paths::key_of("shop", parts[4]), Some(key.clone()));
                let other = keys.insert(path, key.clone()).filter(|other| *other != key);
                prop_assert!(other.is_none(), "{key:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_literal_key_is_a_path_below_the_chroot() {
        let literal = |text: &'static str| paths(true).lock(&LockKey::new("shop", Key::text(text)).unwrap());
        assert_eq!(literal("/locks/mutex").unwrap(), "/app/locks/mutex");
        assert_eq!(literal("locks/mutex").unwrap(), "/app/locks/mutex");
        for text in ["/", "a//b", "a/", "a/../b", "./a"] {
            assert!(matches!(literal(text).unwrap_err().kind(), ErrorKind::Unsupported { .. }), "{text}");
        }
        let at_the_root = Paths { root: String::new(), literal: true };
        assert!(at_the_root.lock(&LockKey::new("shop", Key::text("zookeeper/quota")).unwrap()).is_err());
        let of = |text: &'static str| paths(true).identify(&LockKey::new("shop", Key::text(text)).unwrap()).unwrap();
        assert_eq!(of("a/b").lock(), of("/a/b").lock());
    }
}
