//! The owner id: a random value that is fresh for each acquisition.

use std::fmt;

/// 128 random bits, fresh for every acquisition and the same for all of its attempts.
///
/// It is a bearer secret: a caller that knows it can release the lock. So it is never printed; `Debug` shows nothing of
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Draws a fresh owner from the operating system's generator.
    ///
    /// # Errors
    /// When the operating system gives no random bytes. A guessable owner would let strangers release.
    pub fn fresh() -> Result<Self, crate::Error> {
        Self::fresh_in(std::process::id())
    }

    /// As [`fresh`](Self::fresh), for a caller that has just asked for the process's id.
    pub fn fresh_in(pid: u32) -> Result<Self, crate::Error> {
        #[cfg(feature = "simulation")]
        if FOLLOWS_SEED.get() {
            return Ok(Self(fastrand::u128(..).to_le_bytes()));
        }
        // One system call for many owners: it costs as much as all else of an uncontended acquisition.
        thread_local!(static POOL: std::cell::RefCell<RandomPool> = const { std::cell::RefCell::new(RandomPool::new()) });
        // In a thread's destructors the pool may be gone already: then one owner is drawn by itself.
        let drawn = POOL.try_with(|pool| pool.borrow_mut().draw(pid)).unwrap_or_else(|_| RandomPool::new().draw(pid));
        drawn.map_err(|error| {
            crate::Error::new(crate::ErrorKind::Internal, "the operating system gave no random bytes").because(error)
        })
    }

    /// An owner with these bytes, for a backend that reads one back from its store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// 32 hexadecimal digits, for a store that wants text.
    #[must_use]
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = String::with_capacity(32);
        for byte in self.0 {
            hex.push(char::from(DIGITS[usize::from(byte >> 4)]));
            hex.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        hex
    }
}

#[cfg(feature = "simulation")]
thread_local!(static FOLLOWS_SEED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

/// For the simulation: whether the owners of this thread follow the seed of its generator from now on. Returns what was so
/// before.
#[cfg(feature = "simulation")]
pub fn follow_seed(follows: bool) -> bool {
    FOLLOWS_SEED.replace(follows)
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(..)")
    }
}

/// Random bytes drawn in one go. A fork would share them with the child, so they carry the process's id.
struct RandomPool {
    bytes: [u8; 1024],
    used: usize,
    pid: u32,
}

impl RandomPool {
    const fn new() -> Self {
        Self { bytes: [0; 1024], used: 1024, pid: 0 }
    }

    fn draw(&mut self, pid: u32) -> Result<Owner, getrandom::Error> {
        if self.used + 16 > self.bytes.len() || self.pid != pid {
            getrandom::fill(&mut self.bytes)?;
            (self.used, self.pid) = (0, pid);
        }
        let mut owner = [0; 16];
        let drawn = &mut self.bytes[self.used..self.used + 16];
        owner.copy_from_slice(drawn);
        // The owner is a secret, so no copy stays in the pool.
        drawn.fill(0);
        self.used += 16;
        Ok(Owner(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_fresh_and_silent() {
        let owners: std::collections::HashSet<_> = (0..1000).map(|_| Owner::fresh().unwrap()).collect();
        assert_eq!(owners.len(), 1000);
        let owner = Owner::fresh().unwrap();
        assert_eq!(format!("{owner:?}"), "Owner(..)");
        assert_eq!(owner.to_hex().len(), 32);
    }

    #[test]
    fn hex_is_the_bytes() {
        let mut bytes = [0; 16];
        bytes[0] = 0xa5;
        bytes[15] = 1;
        assert_eq!(Owner::from_bytes(bytes).to_hex(), "a5000000000000000000000000000001");
    }
}
