//! Leadership: a long hold with a name.
//!
//! Owns the election's builder and its campaign, the leader's guard ([`leadership`]), the loop that runs a body on the
//! leader alone ([`lead`]), watching who leads ([`watch`]), and the list of candidates ([`candidates`]). An election is a lock: whatever is said about locks holds
//! for it.

mod candidates;
mod lead;
mod leadership;
mod watch;

use std::time::Duration;

#[cfg(doc)]
use dlock_contract::ErrorKind;

use dlock_contract::{BootInstant, Error, Key, LockKey, Result};
use dlock_values::LONGEST;

pub use self::candidates::Candidates;
pub use self::leadership::{Leader, Leadership};
pub use self::watch::{LeaderWatch, SeenLeader};
use crate::api::lock::Lock;
use crate::api::registry::Registry;
use crate::options::Wait;

/// The longest name that fits into the note of a lock, in bytes.
const LONGEST_CANDIDATE_NAME: usize = 80;

/// The longest pause between two looks of an observer, unless the election says another.
const LONGEST_LOOK_PAUSE: Duration = Duration::from_secs(1);

/// An election: candidates in all processes campaign, and at most one of them leads. Made by [`elect`](crate::elect).
///
/// It is the lock of this key, held for as long as the leader lives. So `dlock::holders`, `dlock::locks` and
/// `dlock::break_lock` work on it, and a function that locks the same key excludes the leader. The fencing token is the
/// term: it rises with each leader.
///
/// A leadership has no longest time: the registry's default `max_hold` of 1 h does not end it. [`max_hold`](Self::max_hold)
/// sets one.
///
/// ```
/// # use dlock_runtime as dlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dlock_runtime::Error> {
/// dlock::install("main", dlock_memory::Memory::new())?;
///
/// let election = dlock::elect("billing").candidate("web-3");
/// let leadership = election.campaign().await?;
/// println!("leading in term {}", leadership.term());
/// let seen = election.leader().await?.expect("somebody leads");
/// assert_eq!(seen.candidate(), Some("web-3"));
/// leadership.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nobody campaigns until `campaign` or `lead`"]
pub struct Election {
    lock: Lock,
    namespace: Option<Box<str>>,
    candidate: Option<String>,
    poll: Duration,
}

impl Registry {
    /// An election of this name; see [`Election`].
    #[track_caller]
    pub fn elect(&self, name: impl Into<Key>) -> Election {
        // The hold of a leader is meant to be long.
        let lock = self.lock(name).named_by_key().max_hold(LONGEST).wait(Wait::Forever).of_election();
        Election { lock, namespace: None, candidate: None, poll: LONGEST_LOOK_PAUSE }
    }
}

impl Election {
    /// How long the store keeps a leader that is gone: after a crash the next leader comes when this time is over.
    /// Default: the registry's ttl, 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// The name of an installed backend. Default: the registry's default.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.lock = self.lock.backend(name);
        self
    }

    /// The namespace. Default: the registry's.
    pub fn namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        let namespace = namespace.into();
        self.lock = self.lock.namespace(namespace.clone());
        self.namespace = Some(namespace);
        self
    }

    /// The name of this candidate, which observers see. At most 80 bytes of printable ASCII without blanks. Default: the
    /// place in the source. Observers see the host and the process id in any case.
    pub fn candidate(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.lock = self.lock.noted(&*name);
        self.candidate = Some(name);
        self
    }

    /// The longest leadership. After it, the leadership is lost, and others get their turn. Default: none.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.lock = self.lock.max_hold(max_hold);
        self
    }

    /// The longest wait of a campaign, as for a lock: after it, [`campaign`](Self::campaign) and
    /// [`campaign_blocking`](Self::campaign_blocking) fail with [`ErrorKind::WaitTimeout`]. [`lead`](Self::lead) waits without
    /// end in any case. Default: without end.
    pub fn wait(mut self, longest: Duration) -> Self {
        self.lock = self.lock.wait(Wait::UpTo(longest));
        self
    }

    /// The longest pause between two looks of an [observer](Self::observe), 10 ms or more; each pause is between half of it
    /// and all of it, at random. Default: 1 s.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Waits until this candidate leads, for as long as it takes or for the time of [`wait`](Self::wait). Dropping the future leaves the election, and leaves
    /// nothing in the store.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a store without fencing tokens; [`ErrorKind::Outage`] if the store does not answer,
    /// after the registry's retries; [`ErrorKind::WaitTimeout`] after [`wait`](Self::wait); [`ErrorKind::ShutDown`]; [`ErrorKind::ConfigInvalid`] for a candidate that the note
    /// cannot carry; otherwise as [`Lock::acquire`]. [`lead`](Self::lead) goes on campaigning after an outage.
    pub fn campaign(&self) -> impl Future<Output = Result<Leadership>> + Send + use<> {
        let lock = self.checked();
        async move { Leadership::new(lock?.acquire().await?) }
    }

    /// As [`campaign`](Self::campaign), if nobody leads now.
    ///
    /// # Errors
    /// As `campaign`; [`ErrorKind::Busy`] if somebody leads.
    pub fn try_campaign(&self) -> impl Future<Output = Result<Leadership>> + Send + use<> {
        let lock = self.checked();
        async move { Leadership::new(lock?.try_acquire().await?) }
    }

    /// As [`campaign`](Self::campaign), for code that is not async: this thread sleeps meanwhile.
    ///
    /// # Errors
    /// As `campaign`, and [`Lock::acquire_blocking`].
    pub fn campaign_blocking(&self) -> Result<Leadership> {
        Leadership::new(self.checked()?.acquire_blocking()?)
    }

    /// The lock, for one request. A name that the store would have in another form is refused.
    fn checked(&self) -> Result<Lock> {
        if let Some(namespace) = &self.namespace {
            LockKey::check_namespace(namespace)?;
        }
        let as_it_is = |name: &String| {
            (1..=LONGEST_CANDIDATE_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !self.candidate.as_ref().is_none_or(as_it_is) {
            let text = format!(
                "the name of a candidate must have 1 to {LONGEST_CANDIDATE_NAME} bytes of printable ASCII without blanks"
            );
            return Err(Error::config("candidate", text));
        }
        Ok(self.lock.clone())
    }

    /// Sleeps until then, or fails when the registry shuts down.
    async fn sleep_until(&self, until: BootInstant) -> Result<()> {
        let shared = self.lock.registry().context().shared();
        let sleep = shared.shutdown.or(shared.clock.sleep_until(until));
        #[cfg(feature = "testing")]
        if shared.clock.is_of_kit() {
            return shared.clock.unless_it_stands(sleep).await?;
        }
        sleep.await
    }
}
