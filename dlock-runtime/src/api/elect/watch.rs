//! Watching who leads, from any process: by looks at the lock, which every store can answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_contract::{BootInstant, Error, ErrorKind, HoldId, Holder, Note, Result};
use dlock_store::engine::not_forked;
use dlock_values::LONGEST;
use futures::Stream;
use futures::stream::unfold;

use super::Election;
use crate::hold::jitter::full_jitter;

/// The shortest that the longest pause between two looks may be: a look is a request.
const SHORTEST_LOOK_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause after looks that failed.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// A look is worth it so soon after the lease of a leader has ended.
const DELAY_AFTER_LEASE: Duration = Duration::from_millis(5);

/// How many times the pause between looks at an expired lease is doubled: to more than five minutes.
const MOST_DOUBLINGS: u32 = 16;

/// A leader as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenLeader {
    /// The candidate's name, its host and process, and when it began to campaign, by its own clock.
    pub note: Note,
    /// Names the leadership; also for `dlock::break_lock`. `None` for a foreign client's lock, and for a key that a function
    /// with `min_hold` keeps.
    pub id: Option<HoldId>,
    /// The term, on stores that keep the fencing token beside the lock: all but Redis and Redlock.
    pub term: Option<u64>,
    /// The last look that did not show this leader, by this process's wall clock: it began to lead after that. `None` if
    /// it led already at the first look.
    pub leads_after: Option<SystemTime>,
    /// The look that showed it first, by this process's wall clock.
    pub seen: SystemTime,
}

impl SeenLeader {
    /// The name that it gave itself ([`Election::candidate`]), or the place in its source.
    #[must_use]
    pub fn candidate(&self) -> Option<&str> {
        self.note.site()
    }

    pub(super) fn new(holder: Holder, seen: SystemTime, leads_after: Option<SystemTime>) -> Self {
        Self { note: holder.note, id: holder.id, term: holder.token, leads_after, seen }
    }

    /// Whether this is the same leader. A renewal changes neither its id nor its token.
    fn is_same_leadership(&self, holder: &Holder) -> bool {
        match (self.id, holder.id) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.note == holder.note && self.term == holder.token,
            _ => false,
        }
    }
}

impl Election {
    /// Returns the present leader; `None` if nobody leads. One request.
    ///
    /// # Errors
    /// As [`Lock::holders`](crate::Lock::holders).
    pub async fn leader(&self) -> Result<Option<SeenLeader>> {
        let holder = self.look().await?;
        Ok(holder.map(|holder| SeenLeader::new(holder, self.wall(), None)))
    }

    /// Watches who leads. Needs no candidate, and does not campaign.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] for a [`poll`](Self::poll) below 10 ms or above 100 years.
    pub fn observe(&self) -> Result<LeaderWatch> {
        if self.poll < SHORTEST_LOOK_PAUSE || self.poll > LONGEST {
            let text = "`poll`, the longest pause between two looks, must be 10 ms or more, and at most 100 years";
            return Err(Error::config("poll", text));
        }
        let next_look = self.lock.registry().clock().now();
        Ok(LeaderWatch { election: self.clone(), known: None, looked: None, next_look, failed: 0, overdue: 0 })
    }

    async fn look(&self) -> Result<Option<Holder>> {
        Ok(self.checked()?.holders().await?.holders.into_iter().next())
    }

    pub(super) fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.lock.registry().clock().wall_ms())
    }
}

/// The changes of an election, as this process sees them; made by [`Election::observe`].
///
/// It looks at the lock now and then (see [`Election::poll`]), and at once after the end of a leader's lease, on every
/// store alike. It reports only changes that a look has shown: a leader that came and went between two looks is not
/// seen, and a look that fails is no change.
#[derive(Debug)]
#[must_use = "nobody looks until `changed`"]
pub struct LeaderWatch {
    election: Election,
    /// The last reported leader. The outer `None` means that nothing was reported yet.
    known: Option<Option<SeenLeader>>,
    /// When the last look that was answered was asked.
    looked: Option<SystemTime>,
    next_look: BootInstant,
    failed: u32,
    /// How many looks in a row showed a leader whose lease has expired.
    overdue: u32,
}

impl LeaderWatch {
    /// Waits for a change, and returns the new leader, or `None` if nobody leads. The first call returns the present
    /// leader.
    ///
    /// A future that is dropped loses no change; the pause goes on at the next call.
    ///
    /// # Errors
    /// The errors of a look that failed. The next call looks again, after a pause that grows to 5 s while looks fail.
    /// [`ErrorKind::ShutDown`] after a shutdown, then again at each call.
    pub async fn changed(&mut self) -> Result<Option<SeenLeader>> {
        not_forked()?;
        let shared = self.election.lock.registry().context().shared().clone();
        loop {
            self.election.sleep_until(self.next_look).await?;
            let asked = self.election.wall();
            let found = shared.shutdown.or(self.election.look()).await?;
            let pause = self.pause(&found);
            self.next_look = shared.clock.now().after(pause);
            let holder = found?;
            // A leader may come while the answer is on its way: a look shows what was so after it was asked.
            let before = self.looked.replace(asked);
            let same = match (&self.known, &holder) {
                (Some(Some(known)), Some(holder)) => known.is_same_leadership(holder),
                (Some(None), None) => true,
                _ => false,
            };
            if !same {
                let leader = holder.map(|holder| SeenLeader::new(holder, self.election.wall(), before));
                self.known = Some(leader.clone());
                return Ok(leader);
            }
        }
    }

    /// The last reported leader. Does not ask the store.
    #[must_use]
    pub fn leader(&self) -> Option<&SeenLeader> {
        self.known.as_ref()?.as_ref()
    }

    /// The changes as a stream. It goes on after an error, and ends with a shutdown.
    pub fn into_stream(self) -> impl Stream<Item = Result<Option<SeenLeader>>> + Send {
        unfold(self, |mut watch| async {
            match watch.changed().await {
                Err(error) if *error.kind() == ErrorKind::ShutDown => None,
                told => Some((told, watch)),
            }
        })
    }

    /// Until the next look.
    fn pause(&mut self, found: &Result<Option<Holder>>) -> Duration {
        let poll = self.election.poll;
        match found {
            Ok(holder) => {
                self.failed = 0;
                let pause = poll.mul_f64(0.5 + fastrand::f64() / 2.0);
                let lease_left = holder.as_ref().and_then(|holder| holder.lease_left);
                // A store may show a holder after its lease, for as long as nobody takes the lock from it.
                self.overdue = if lease_left == Some(Duration::ZERO) { self.overdue.saturating_add(1) } else { 0 };
                let after = DELAY_AFTER_LEASE.saturating_mul(1 << self.overdue.saturating_sub(1).min(MOST_DOUBLINGS));
                lease_left.map_or(pause, |left| pause.min(left + after))
            }
            Err(_) => {
                let pause = poll / 2 + full_jitter(self.failed, poll, LONGEST_RETRY_PAUSE.max(poll));
                self.failed = self.failed.saturating_add(1);
                pause
            }
        }
    }
}
