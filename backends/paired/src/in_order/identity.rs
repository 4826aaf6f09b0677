//! Checks that two stores agree which keys are one lock.

use dlock_contract::{Backend, Error, Identity, Key, LockKey, Result};

use crate::in_order::{InOrder, PairKind};

impl InOrder {
    /// Where both stores are.
    pub(crate) fn host(&self) -> Option<String> {
        let hosts: Vec<_> = [self.first.host(), self.second.host()].into_iter().flatten().collect();
        (!hosts.is_empty()).then(|| hosts.join(" and "))
    }

    /// The lock's identity in the second store, with its names in both stores.
    pub(crate) fn identify(&self, key: &LockKey) -> Result<Identity> {
        let (first, second) = (self.first.identify(key)?, self.second.identify(key)?);
        let mut names = second.names();
        names.extend(first.names().into_iter().filter(|name| !second.names().contains(name)));
        Ok(names.into_iter().fold(Identity::of(second.lock()), Identity::named))
    }
}

/// Refuses two stores if one of them treats two keys as one lock and the other does not. Otherwise callers of two locks in
/// one store would wait for each other in the other store.
pub(crate) fn check_same_identity(first: &dyn Backend, second: &dyn Backend, kind: PairKind) -> Result<()> {
    for (what, one, other) in key_pairs()? {
        let merges =
            |store: &dyn Backend| Some(store.identify(&one).ok()?.lock() == store.identify(&other).ok()?.lock());
        if let (Some(in_first), Some(in_second)) = (merges(first), merges(second))
            && in_first != in_second
        {
            let [first, second] = kind.names();
            let (merging, other) = if in_first { (first, second) } else { (second, first) };
            return Err(Error::config(
                "keys",
                format!(
                    "the {first} and the {second} must agree which keys are one lock: for the {merging}, {what} are one \
                     lock, and for the {other} they are not; open both with the same form of keys"
                ),
            ));
        }
    }
    Ok(())
}

/// Pairs of keys that some store may treat as one lock.
fn key_pairs() -> Result<Vec<(&'static str, LockKey, LockKey)>> {
    let of = |namespace: &str, key: Key| LockKey::new(namespace, key);
    let value = |text: &str| of("dlock", Key::text("key:").value(text));
    let long = |end: &str| value(&format!("{}{end}", "k".repeat(1000)));
    Ok(vec![
        ("a value and the same text in the template", value("one")?, of("dlock", Key::text("key:one"))?),
        ("the same key in two namespaces", value("one")?, of("other", Key::text("key:").value("one"))?),
        ("keys that differ in upper and lower case", value("one")?, value("ONE")?),
        ("keys that differ in a blank at the end", value("one")?, value("one ")?),
        ("keys that differ in an accent", value("one")?, value("ön\u{e9}")?),
        ("two forms of one accent", value("\u{e9}")?, value("e\u{301}")?),
        ("long keys that differ at the end", long("1")?, long("2")?),
    ])
}
