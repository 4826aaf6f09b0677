//! The candidates of an election, as far as its store knows them.

use dlock_contract::{Note, Result};

use super::{Election, SeenLeader};
use crate::api::waiters::waiters_of;

/// The most candidates that are named.
const MOST_NAMED: usize = 1000;

/// The candidates of an election when the store was asked; made by [`Election::candidates`].
///
/// Candidates of one process wait in that process. They are one candidate in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidates {
    /// The leader. `None` if nobody leads.
    pub leader: Option<SeenLeader>,
    /// The number of candidates that wait in the store's wait queue. `None` if the store does not count them.
    pub waiting: Option<u64>,
    /// Their notes, in the order of the queue, at most 1000: each has the candidate's name ([`Note::site`]), its host
    /// and its process. `None` if the store keeps no notes of waiters. Memory, Redis, etcd and ZooKeeper keep them.
    pub waiters: Option<Vec<Note>>,
}

impl Election {
    /// The leader and the candidates that wait, as far as the store knows them. It sends two or three requests. On
    /// ZooKeeper it sends one more for each candidate that is named.
    ///
    /// ```
    /// # use dlock_runtime as dlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # dlock::install("main", dlock_memory::Memory::new())?;
    /// let election = dlock::elect("billing").candidate("web-3");
    /// let leadership = election.campaign().await?;
    /// let candidates = election.candidates().await?;
    /// assert_eq!(candidates.leader.as_ref().and_then(|leader| leader.candidate()), Some("web-3"));
    /// assert_eq!(candidates.waiting, Some(0));
    /// # leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lock::holders`](crate::Lock::holders).
    pub async fn candidates(&self) -> Result<Candidates> {
        let asked = self.checked()?.look(|backend, key| {
            Box::pin(async move { Ok((backend.look(key).await?, waiters_of(backend, key, MOST_NAMED).await?)) })
        });
        let (state, waiters) = asked.await?;
        let leader = state.holders.into_iter().next();
        let leader = leader.map(|holder| SeenLeader::new(holder, self.wall(), None));
        Ok(Candidates { leader, waiting: state.waiters, waiters })
    }
}
