//! Tests the rights of the account, with the requests of an acquisition on keys that no lock has.
//!
//! The server's refusal names no key, so each prefix is tested by itself.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};

use super::connection::Connection;
use super::fault::Fault;
use super::names::{EPOCHS, Layout};

/// The server's default for the most operations of one transaction.
const USUAL_MAX_OPERATIONS: usize = 128;

/// The prefix of the keys of all locks.
pub(super) const LOCKS: &str = "dl1:";

/// Tests whether leases are granted, and the rights that every lock needs. Returns the server's shortest ttl, which depends on
/// its election timeout: the server raises a shorter ttl silently.
pub(super) async fn probe(connection: &Connection, layout: Layout) -> Result<Duration> {
    let lease = connection.grant(1).await?;
    let mut tried = Ok(());
    // Literal names do not have dlock's prefix.
    let prefixes: &[_] = if layout == Layout::Own { &[LOCKS, EPOCHS] } else { &[EPOCHS] };
    for prefix in prefixes {
        if tried.is_ok() {
            tried = try_prefix(connection, prefix, lease.id()).await;
        }
    }
    if tried.is_ok() {
        tried = try_many_operations(connection).await;
    }
    // If this fails, the lease ends by itself.
    let _ = connection.revoke(lease.id()).await;
    tried?;
    u64::try_from(lease.ttl())
        .ok()
        .filter(|ttl| *ttl > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "etcd granted a lease without time"))
}

/// Reads a key that no lock has, and sends a put whose condition never holds. The server checks the right to write, which
/// is that to delete too, and its history stays as it is: a readiness probe asks every few seconds.
async fn try_prefix(connection: &Connection, prefix: &str, lease: i64) -> Result<()> {
    let key = format!("{prefix}probe/{lease:016x}");
    let read = connection.get(key.as_bytes(), GetOptions::new().with_keys_only()).await;
    check_answer(read.map(drop), prefix, "read")?;
    let present = Compare::create_revision(key.as_bytes(), CompareOp::Greater, 0);
    let put = TxnOp::put(key.as_bytes(), "", Some(PutOptions::new().with_lease(lease)));
    let written = connection.txn(Txn::new().when([present]).and_then([put])).await;
    check_answer(written.map(drop), prefix, "write")
}

/// A renewal reads the keys of many holds at once.
async fn try_many_operations(connection: &Connection) -> Result<()> {
    let read = || TxnOp::get(format!("{EPOCHS}probe"), Some(GetOptions::new().with_keys_only()));
    match connection.txn(Txn::new().and_then((0..USUAL_MAX_OPERATIONS).map(|_| read()).collect::<Vec<_>>())).await {
        Err(Fault::Refused(_, text)) if text.contains("too many operations") => Err(Error::config(
            "max-txn-ops",
            format!("dlock needs the server's default `--max-txn-ops={USUAL_MAX_OPERATIONS}` or more: {text}"),
        )),
        answer => Ok(answer.map(drop)?),
    }
}

fn check_answer(answer: Result<(), Fault>, prefix: &str, what: &str) -> Result<()> {
    match answer {
        Err(Fault::Refused(ErrorKind::PermissionDenied, text)) => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "the account may not {what} keys with the prefix `{prefix}`, and every lock needs this: {text}. Grant it: etcdctl role grant-permission ROLE --prefix=true readwrite {prefix}"
            ),
        )),
        answer => Ok(answer?),
    }
}
