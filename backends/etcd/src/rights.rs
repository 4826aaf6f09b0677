//! The rights of the account, tested with the requests of an acquisition on names of our own.
//!
//! The refusal of the server names no key, so each prefix is tested by itself.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};

use super::connection::Connection;
use super::fault::Fault;
pub(super) use super::lease::EPOCHS;
use super::names::Layout;

/// The beginning of the keys of all locks.
pub(super) const LOCKS: &str = "dl1:";

/// Tries the rights that every lock needs. Gives the shortest ttl of this server: it depends on the server's election
/// timeout, and shorter ones are raised silently.
pub(super) async fn probe(connection: &Connection, layout: Layout) -> Result<Duration> {
    let lease = connection.grant(1).await?;
    let mut tried = Ok(());
    // Literal names have no prefix of ours.
    let prefixes: &[_] = if layout == Layout::Own { &[LOCKS, EPOCHS] } else { &[EPOCHS] };
    for prefix in prefixes {
        if tried.is_ok() {
            tried = try_prefix(connection, prefix, lease.id()).await;
        }
    }
    // Revoking it deletes the keys. It also ends by itself.
    let _ = connection.revoke(lease.id()).await;
    tried?;
    u64::try_from(lease.ttl())
        .ok()
        .filter(|ttl| *ttl > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "etcd granted a lease without time"))
}

/// Reads, puts and deletes a key that no lock has.
async fn try_prefix(connection: &Connection, prefix: &str, lease: i64) -> Result<()> {
    let key = format!("{prefix}probe/{lease:016x}");
    read_key(connection, &key, prefix).await?;
    let absent = Compare::create_revision(key.as_bytes(), CompareOp::Equal, 0);
    let put = TxnOp::put(key.as_bytes(), "", Some(PutOptions::new().with_lease(lease)));
    let written = connection.txn(Txn::new().when([absent]).and_then([put])).await;
    understand(written.map(drop), prefix, "write")?;
    let deleted = connection.txn(Txn::new().and_then([TxnOp::delete(key.as_bytes(), None)])).await;
    understand(deleted.map(drop), prefix, "delete")
}

/// Reads a key that no lock has, by a majority of the members.
pub(super) async fn read(connection: &Connection, prefix: &str) -> Result<()> {
    read_key(connection, &format!("{prefix}probe"), prefix).await
}

async fn read_key(connection: &Connection, key: &str, prefix: &str) -> Result<()> {
    let read = connection.get(key.as_bytes(), GetOptions::new().with_keys_only()).await;
    understand(read.map(drop), prefix, "read")
}

fn understand(answer: Result<(), Fault>, prefix: &str, what: &str) -> Result<()> {
    match answer {
        Err(Fault::Refused(ErrorKind::PermissionDenied, text)) => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "the account may not {what} keys with the prefix `{prefix}`, and every lock needs this: {text}. Grant it: etcdctl role grant-permission ROLE --prefix=true readwrite {prefix}"
            ),
        )),
        // The account has the right, and the store grants locks again once there is space.
        Err(Fault::NoSpace) => Ok(()),
        answer => Ok(answer?),
    }
}
