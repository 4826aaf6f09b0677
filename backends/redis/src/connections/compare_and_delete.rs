//! Compare-and-delete as one command of the server, if it has one: `DELEX … IFEQ` of Redis 8.4, `DELIFEQ` of Valkey 9.
//!
//! In a cluster all servers have to have it when the store is opened; one that comes later and refuses it ends its use.
//! A way that leads elsewhere (`MOVED`, `ASK`) has done nothing, and after any other failure nobody sends it again: so
//! 0 always means that it has deleted nothing.

use std::sync::atomic::{AtomicU8, Ordering};

use ::redis::{Cmd, Value};
use dlock_contract::Claim;

use crate::layout::name::LockName;
use crate::layout::value::LockValue;
use crate::reply::read::{field, is_forbidden, text};

const NONE: u8 = 0;
const DELEX: u8 = 1;
const DELIFEQ: u8 = 2;

/// The command of the server, or of all servers of a cluster: none, `DELEX` or `DELIFEQ`.
#[derive(Debug, Default)]
pub(crate) struct CompareAndDelete(AtomicU8);

impl CompareAndDelete {
    /// Looks at what the servers say of themselves.
    pub(crate) fn look_at<'a>(&self, infos: impl IntoIterator<Item = &'a Value>) {
        let mut found = infos.into_iter().map(of);
        let first = found.next().unwrap_or(NONE);
        let all = found.all(|other| other == first);
        self.0.store(if all { first } else { NONE }, Ordering::Relaxed);
    }

    /// The release of a lock for which nobody waits.
    pub(crate) fn delete(&self, claim: &Claim) -> Option<Cmd> {
        let native = self.0.load(Ordering::Relaxed);
        if native == NONE {
            return None;
        }
        let mut delete = Cmd::with_capacity(4, 160);
        if native == DELEX {
            delete.arg("DELEX").arg(LockName(&claim.key)).arg("IFEQ").arg(LockValue(claim));
        } else {
            delete.arg("DELIFEQ").arg(LockName(&claim.key)).arg(LockValue(claim));
        }
        Some(delete)
    }

    /// Whether the command has deleted the lock. If not, it has done nothing, and the script finds out why: others
    /// wait, or another owner holds the lock.
    pub(crate) fn note_answer(&self, answer: &Value) -> bool {
        if is_forbidden(answer) {
            // Unknown, renamed, not allowed, or of another type: the script does without.
            self.0.store(NONE, Ordering::Relaxed);
        }
        *answer == Value::Int(1)
    }
}

/// The command that this server has.
fn of(info: &Value) -> u8 {
    let version = |name| {
        let mut parts = text(info).and_then(|info| field(info, name))?.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    match version("valkey_version") {
        Some(version) if version >= (9, 0) => DELIFEQ,
        Some(_) => NONE,
        None if version("redis_version").is_some_and(|version| version >= (8, 4)) => DELEX,
        None => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::{Key, LockKey};
    use std::time::Duration;

    #[test]
    fn versions_with_and_without_the_command_are_told_apart() {
        let claim = Claim::new(LockKey::new("a", Key::text("k")).unwrap(), Duration::from_secs(1), "s").unwrap();
        for (info, name) in [
            ("redis_version:7.0.15\r\n", None),
            ("redis_version:8.3.0\r\n", None),
            ("redis_version:8.4.0\r\n", Some("DELEX")),
            ("redis_version:10.0.1\r\n", Some("DELEX")),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n", None),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", Some("DELIFEQ")),
        ] {
            let command = CompareAndDelete::default();
            command.look_at([&Value::BulkString(info.into())]);
            let found = command.delete(&claim).map(|command| command.get_packed_command());
            assert_eq!(found.is_some(), name.is_some(), "{info}");
            if let (Some(found), Some(name)) = (found, name) {
                assert!(String::from_utf8_lossy(&found).contains(name));
            }
        }
    }

    #[test]
    fn all_servers_of_a_cluster_must_have_the_same_command() {
        let [old, redis, valkey] = ["redis_version:7.0.15\r\n", "redis_version:8.4.0\r\n", "valkey_version:9.1.2\r\n"]
            .map(|info| Value::BulkString(info.into()));
        let found = |infos: &[&Value]| {
            let command = CompareAndDelete::default();
            command.look_at(infos.iter().copied());
            command.0.into_inner()
        };
        assert_eq!((found(&[&redis, &redis]), found(&[&valkey, &valkey])), (DELEX, DELIFEQ));
        for infos in [&[&redis, &old][..], &[&old, &redis], &[&redis, &valkey], &[&redis, &Value::Nil], &[]] {
            assert_eq!(found(infos), NONE);
        }
    }
}
