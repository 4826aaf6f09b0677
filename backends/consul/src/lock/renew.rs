//! Renews many holds: one request for each session, and transactions that check all keys together.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Hold, Result, Standing, Validity};
use futures::future::{join, join_all};

use crate::api::session;
use crate::api::txn::{self, MAX_OPS, Op, TxnOutcome};
use crate::lock::claim_state::HoldSession;
use crate::lock::shared::Shared;

/// The parts of a hold that a renewal needs.
pub(crate) struct Renewal {
    session: Arc<HoldSession>,
    ttl: Duration,
}

impl Renewal {
    pub(crate) fn of(hold: &Hold) -> Result<Self> {
        Ok(Self { session: session_of(hold)?, ttl: hold.claim.ttl })
    }
}

/// The session of a hold of this store.
pub(crate) fn session_of(hold: &Hold) -> Result<Arc<HoldSession>> {
    let foreign = || Error::new(ErrorKind::Internal, "a hold of another backend was given to Consul");
    hold.shared_session::<HoldSession>().ok_or_else(foreign)
}

impl Shared {
    pub(crate) async fn renew(self: Arc<Self>, holds: Vec<Renewal>) -> Vec<Result<Standing>> {
        // A session that is alive does not prove that it holds the key: an operator may have deleted the key.
        let kept = join_all(holds.iter().map(|hold| self.keep_alive(hold)));
        let keys_held = join_all(holds.chunks(MAX_OPS).map(|batch| self.keys_held(batch)));
        let (kept, keys_held) = join(kept, keys_held).await;
        let answers = kept.into_iter().zip(keys_held.into_iter().flatten()).map(|answers| match answers {
            (Ok(None), _) | (_, Ok(false)) => Ok(Standing::Lost),
            (Ok(Some(validity)), Ok(true)) => Ok(Standing::Renewed(validity)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        });
        answers.collect()
    }

    /// Renews the session. `None`: it has ended.
    async fn keep_alive(&self, hold: &Renewal) -> Result<Option<Validity>> {
        let since = session::renew(&self.http, &hold.session.session_id).await?;
        Ok(since.map(|since| Validity::new(since, hold.ttl)))
    }

    /// Whether each hold's session holds its key. The leader answers after it has confirmed its role with a majority.
    async fn keys_held(&self, holds: &[Renewal]) -> Vec<Result<bool>> {
        let permits: Vec<String> =
            holds.iter().map(|hold| hold.session.name.permit(&hold.session.session_id)).collect();
        let ops = holds.iter().zip(&permits).map(|(Renewal { session, .. }, permit)| {
            Op::held(if session.is_permit { permit } else { &session.name.lock }, &session.session_id)
        });
        match txn::check_holds(&self.http, &ops.collect::<Vec<_>>()).await {
            Ok(TxnOutcome::Done(_)) => holds.iter().map(|_| Ok(true)).collect(),
            // The answer names every operation that failed.
            Ok(TxnOutcome::Refused(lost)) => {
                (0..holds.len()).map(|at| Ok(lost.iter().all(|failure| failure.op_index != at))).collect()
            }
            Err(error) => holds.iter().map(|_| Err(error.again())).collect(),
        }
    }
}
