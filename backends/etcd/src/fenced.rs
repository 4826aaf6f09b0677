//! Writes to etcd that a stale holder cannot make: a clause for transactions of your own.
//!
//! In the transaction that writes, the clause compares that the hold still exists. It needs no extra key beside the
//! resource. It refuses a holder as soon as its lock has ended in etcd, also before the next holder comes.
//!
//! The resource must be in the same cluster as the lock, and all of its writers must use the clause.
//!
//! ```no_run
//! # async fn example(fence: dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_etcd::client::{Client, Txn, TxnOp};
//! use dlock_etcd::fenced;
//!
//! let client = Client::connect(["http://127.0.0.1:2379"], None).await?;
//! // This reads once. The clause can be used in any number of transactions of this hold.
//! let held = fenced::clause(&client, &fence).await?;
//! let write = Txn::new().when(held).and_then([TxnOp::put("stock:42", "7", None)]);
//! if !client.kv_client().txn(write).await?.succeeded() {
//!     // The hold has ended, and nothing was written.
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(doc)]
use dlock_contract::ErrorKind;
use dlock_contract::{Error, Fence, Result};
use etcd_client::{Client, Compare, CompareOp, KeyValue};

use super::fault::Fault;
use super::names::{Layout, lease_of};

/// Comparisons that succeed while the hold with this token exists in the store. You may add your own.
///
/// # Errors
/// [`ErrorKind::FenceStale`] if the hold has ended; the server's refusals. The account needs the right to read the
/// lock's keys.
pub async fn clause(client: &Client, fence: &Fence) -> Result<[Compare; 2]> {
    of(client, fence, Layout::Own).await
}

/// [`clause`] for a lock of a store with `?keys=literal`.
///
/// # Errors
/// As [`clause`]; [`ErrorKind::Unsupported`] for a key that has no literal name.
pub async fn literal_clause(client: &Client, fence: &Fence) -> Result<[Compare; 2]> {
    of(client, fence, Layout::Literal).await
}

async fn of(client: &Client, fence: &Fence, layout: Layout) -> Result<[Compare; 2]> {
    let range = layout.range(fence.key())?;
    let token = i64::try_from(fence.get()).unwrap_or(i64::MAX);
    let all = range.all();
    // From this revision on: the first later key is the next holder's.
    let options = all.options().with_min_create_revision(token).with_keys_only();
    let mut client = client.kv_client().max_decoding_message_size(usize::MAX);
    let found = client.get(all.from, Some(options)).await.map_err(Fault::from)?;
    let is_it = |key: &&KeyValue| key.create_revision() == token;
    let held = found.kvs().iter().find(is_it).and_then(|key| {
        // A key that `min_hold` keeps has another lease than its name says. Its hold has ended.
        let lease = lease_of(range.read(key.key()).1)?;
        (key.lease() == lease).then_some((key.key(), lease))
    });
    let Some((key, lease)) = held else {
        let later = found.kvs().iter().map(KeyValue::create_revision).filter(|later| *later > token);
        let text = format!("the hold with token {fence} does not exist in etcd any more");
        let seen = u64::try_from(later.min().unwrap_or(token.saturating_add(1))).unwrap_or_default();
        return Err(Error::write_refused(fence, seen, text));
    };
    Ok([Compare::create_revision(key, CompareOp::Equal, token), Compare::lease(key, CompareOp::Equal, lease)])
}
