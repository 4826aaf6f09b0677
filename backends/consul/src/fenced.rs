//! Guarded writes to Consul: a transaction that writes only while the lock's key is as it was at the grant.
//!
//! The fencing token of an exclusive lock is the index at which its key was last changed. Each grant changes the key, and so
//! does the end of each hold. So a transaction that compares the key's index fails for a holder that was paused too long, and
//! also after the holder's own release. Consul calls such a comparison a *sequencer*. Permits have other keys, so these
//! writes are always refused for them.
//!
//! ```no_run
//! # async fn example(fence: dlock_contract::Fence) -> dlock_contract::Result<()> {
//! use dlock_consul::fenced::Writer;
//!
//! let writer = Writer::new("consul://127.0.0.1:8500")?;
//! // Fails with `FenceStale` once the hold has ended.
//! writer.set(&fence, "shop/stock/42", b"7").await?;
//! writer.delete(&fence, "shop/stock/42").await?;
//!
//! // For a transaction of your own, by any client: put this operation before the others.
//! let operation = writer.clause(&fence)?;
//! assert!(operation.starts_with(r#"{"KV":{"Verb":"check-index""#));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;

use dlock_contract::{Error, Fence, Result};
use dlock_store::{Address, Clock, detached};

use crate::api::kv;
use crate::api::txn::{self, Op, TxnOutcome, operation};
use crate::lock::name::Name;
use crate::server::environment;
use crate::server::http::Http;
use crate::server::settings::{FORM, Settings};

/// Writes keys in Consul, each only while the hold with the given token exists.
#[derive(Clone)]
pub struct Writer {
    http: Arc<Http>,
}

impl Writer {
    /// A writer for the agent of this URL, which has the same form as the store's URL. With `keys=literal` the locks have
    /// their literal names. The writer connects at its first write.
    ///
    /// # Errors
    /// A URL, a variable or a file that cannot be read.
    pub fn new(url: &str) -> Result<Self> {
        let settings = Settings::of(&Address::parse(url, &FORM)?, environment::of_process)?;
        Ok(Self { http: Arc::new(Http::new(settings, &Clock::system())?) })
    }

    /// Sets a key to this value.
    ///
    /// # Errors
    /// [`ErrorKind::FenceStale`](dlock_contract::ErrorKind::FenceStale) if the token's hold has ended; the server's refusals.
    pub async fn set(&self, fence: &Fence, key: &str, value: &[u8]) -> Result<()> {
        self.write(fence, key, Some(value)).await
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub async fn delete(&self, fence: &Fence, key: &str) -> Result<()> {
        self.write(fence, key, None).await
    }

    /// An operation for a transaction of your own (`PUT /v1/txn`), as JSON. It fails unless the token's hold still exists.
    ///
    /// # Errors
    /// For a lock that has no literal name, with `keys=literal`.
    pub fn clause(&self, fence: &Fence) -> Result<String> {
        operation(&Op::unchanged(&self.lock_of(fence)?, fence.get()))
    }

    async fn write(&self, fence: &Fence, key: &str, value: Option<&[u8]>) -> Result<()> {
        let (http, lock, fence) = (self.http.clone(), self.lock_of(fence)?, fence.clone());
        let (key, value) = (key.to_owned(), value.map(<[u8]>::to_vec));
        detached(async move {
            let write = match &value {
                Some(value) => Op::set(&key, value),
                None => Op::delete(&key),
            };
            match txn::run(&http, &[Op::unchanged(&lock, fence.get()), write]).await? {
                TxnOutcome::Done(_) => Ok(()),
                TxnOutcome::Refused(_) => {
                    let present = kv::read(&http, &lock, None).await?.found.map(|entry| entry.modify_index);
                    // A free lock may have no key. Its next token is higher.
                    let seen = present.unwrap_or(0).max(fence.get().saturating_add(1));
                    Err(fence.named(Error::fence_stale(&fence, seen)))
                }
            }
        })
        .await
    }

    fn lock_of(&self, fence: &Fence) -> Result<String> {
        Name::of(fence.key(), self.http.settings().literal).map(|name| name.lock)
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("host", &self.http.settings().host).finish_non_exhaustive()
    }
}
