//! Fencing tokens.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::OnceLock;

use crate::error::panics::caught;
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::key::sensitive::key_hash;

/// A fencing token, with the lock that it belongs to. It rises with every grant; the protected resource refuses a
/// lower one than it has seen. Only that excludes a holder that was paused and does not know it yet.
///
/// Not a secret and not an authorisation.
#[derive(Clone)]
pub struct Fence {
    key: LockKey,
    token: NonZeroU64,
    /// Whether errors and `Debug` show the hash of the key.
    is_sensitive: bool,
}

impl Fence {
    /// The token of a grant.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(key: LockKey, token: NonZeroU64) -> Self {
        Self { key, token, is_sensitive: false }
    }

    /// Hides the key of a [sensitive](crate::engine::key_hash) lock.
    #[doc(hidden)]
    #[must_use]
    pub const fn sensitive(mut self, is_sensitive: bool) -> Self {
        self.is_sensitive = is_sensitive;
        self
    }

    /// Puts a token together that came from elsewhere, for instance over the network beside its lock's name.
    ///
    /// # Errors
    /// [`ErrorKind::FenceInvalid`] for a missing token or zero.
    pub fn from_parts(key: LockKey, token: Option<u64>) -> Result<Self> {
        let token = token.and_then(NonZeroU64::new).ok_or_else(|| {
            Error::new(ErrorKind::FenceInvalid, "a fenced write needs a token, and zero is not a token")
                .with_key(key.as_str())
        })?;
        Ok(Self::new(key, token))
    }

    /// The number.
    #[must_use]
    pub const fn get(&self) -> u64 {
        self.token.get()
    }

    /// The lock's full name.
    #[must_use]
    pub const fn key(&self) -> &LockKey {
        &self.key
    }

    /// Checks a write to a resource that has last seen the lock `key` with the token `seen`; for a store's fenced writes.
    ///
    /// # Errors
    /// [`ErrorKind::FenceStale`] if `seen` is higher, and [`ErrorKind::FenceInvalid`] if `key` is another lock.
    pub fn check(&self, key: &[u8], seen: u64) -> Result<()> {
        if key != self.key.as_str().as_bytes() {
            let text = "the resource belongs to another lock: tokens of different locks cannot be compared";
            return Err(self.named(Error::new(ErrorKind::FenceInvalid, text)));
        }
        if seen > self.get() {
            return Err(Error::fence_stale(self, seen));
        }
        Ok(())
    }

    /// Checks the name of a fenced resource: 1 to 512 bytes in all databases, so that a program can move.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`].
    pub fn check_resource(resource: &str) -> Result<()> {
        if resource.is_empty() || resource.len() > 512 {
            return Err(Error::config("resource", "the name of a fenced resource has 1 to 512 bytes"));
        }
        Ok(())
    }

    /// Adds the lock to an error of a fenced write.
    #[must_use]
    pub fn named(&self, error: Error) -> Error {
        error.with_key_or_hash(self.key.as_str(), self.is_sensitive)
    }
}

impl PartialEq for Fence {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, self.token) == (&other.key, other.token)
    }
}

impl Eq for Fence {}

impl Hash for Fence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.key, self.token).hash(state);
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.token)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_sensitive {
            true => write!(f, "Fence({}, {})", key_hash(self.key.as_str()), self.token),
            false => write!(f, "Fence({}, {})", self.key, self.token),
        }
    }
}

impl Error {
    /// The error of a fenced write with an old token.
    #[must_use]
    pub fn fence_stale(given: &Fence, seen: u64) -> Self {
        let text = format!(
            "the write carries token {given}, but {seen} was seen already: the lock has gone to another holder"
        );
        Self::write_refused(given, seen, text)
    }

    /// Like [`fence_stale`](Self::fence_stale), with another text.
    #[must_use]
    pub fn write_refused(given: &Fence, seen: u64, text: String) -> Self {
        if let Some(told) = REFUSAL_LISTENER.get() {
            caught(told);
        }
        given.named(Self::new(ErrorKind::FenceStale { seen }, text))
    }
}

/// Fenced writes belong to no registry, so no observer of one hears of them.
static REFUSAL_LISTENER: OnceLock<fn()> = OnceLock::new();

/// Calls this function for each fenced write that is refused in this process, whatever the resource. Only the first function
/// counts.
pub fn listen_to_refused_writes(told: fn()) {
    let _ = REFUSAL_LISTENER.set(told);
}
