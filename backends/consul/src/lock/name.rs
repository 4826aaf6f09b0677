//! The keys of a lock in Consul.

use dlock_contract::{Error, ErrorKind, LockKey, Result};

/// The names of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// The key of an exclusive lock.
    pub(crate) lock: String,
    /// The key that counts the permits: `NAME/.lock`.
    pub(crate) semaphore: String,
    /// The prefix of the permits' keys. Each holder of a permit has the key `NAME/SESSION`.
    pub(crate) below: String,
    /// The mark of a waiter that was passed over.
    pub(crate) wanted: String,
}

impl Name {
    /// # Errors
    /// A key that has no literal name, or one whose name Consul's server would change.
    pub(crate) fn of(key: &LockKey, literal: bool) -> Result<Self> {
        let lock = if literal { literal_name(key)? } else { without_slashes(key.as_str()) };
        // No namespace contains `!`.
        let wanted = format!("dl1:!wanted:{lock}");
        Ok(Self { semaphore: format!("{lock}/.lock"), below: format!("{lock}/"), wanted, lock })
    }

    /// The key of this session's permit.
    pub(crate) fn permit(&self, session: &str) -> String {
        format!("{}{session}", self.below)
    }
}

/// The key of a lock with dlock's own name has no slash: the server changes paths that contain `//`.
pub(crate) fn without_slashes(text: &str) -> String {
    text.replace('/', "%2F")
}

/// The lock to which a key with dlock's own name belongs. `None` for the count of permits, which shows no holder.
pub(crate) fn lock_of(name: &str) -> Option<LockKey> {
    let lock = match name.split_once('/') {
        // The count of permits outlives its last holder for a moment.
        Some((_, ".lock")) => return None,
        Some((lock, _)) => lock,
        None => name,
    };
    LockKey::from_stored(&lock.replace("%2F", "/"))
}

fn literal_name(key: &LockKey) -> Result<String> {
    let name = key.literal()?.as_str().to_owned();
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        let need = "a key without empty parts, `.` and `..` between its slashes".into();
        let text = "Consul's server would change the path of this key";
        return Err(Error::new(ErrorKind::Unsupported { need }, text).with_key(key.as_str()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;

    use super::*;

    fn key(text: &str) -> LockKey {
        LockKey::new("shop", Key::new().value(text)).unwrap()
    }

    #[test]
    fn a_name_of_ours_is_frozen_and_leads_back_to_its_lock() {
        let name = Name::of(&key("a/b"), false).unwrap();
        assert_eq!(name.lock, "dl1:shop:<a%2Fb>");
        assert_eq!(name.semaphore, "dl1:shop:<a%2Fb>/.lock");
        assert_eq!(name.permit("s"), "dl1:shop:<a%2Fb>/s");
        assert_eq!(lock_of(&name.lock), Some(key("a/b")));
        assert_eq!(lock_of(&name.permit("s")), Some(key("a/b")));
        assert_eq!(lock_of(&name.semaphore), None);
        // An escaped percent sign stays one.
        assert_ne!(Name::of(&key("a%2Fb"), false).unwrap().lock, name.lock);
    }

    #[test]
    fn a_literal_name_is_what_other_tools_write() {
        let literal = |key: Key| Name::of(&LockKey::new("shop", key).unwrap(), true).map(|name| name.lock);
        assert_eq!(literal(Key::text("service/app/.lock")).unwrap(), "service/app/.lock");
        assert_eq!(literal(Key::text("stock/").value(&42)).unwrap(), "stock/42");
        for refused in ["/a", "a//b", "a/", "a/./b", "../a"] {
            let error = literal(Key::text(refused)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{refused}");
        }
    }
}
