//! Renews many holds: each session by a request of its own, and all keys together by transactions that only read.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Hold, Result, Standing, Validity};
use futures::future::{join, join_all};

use crate::api::session;
use crate::api::txn::{self, MOST, Op, Outcome};
use crate::lock::locks::Locks;
use crate::lock::place::Grant;

/// The part of a hold that a renewal needs.
pub(crate) struct Renewal {
    grant: Arc<Grant>,
    ttl: Duration,
}

impl Renewal {
    pub(crate) fn of(hold: &Hold) -> Result<Self> {
        Ok(Self { grant: grant(hold)?, ttl: hold.claim.ttl })
    }
}

/// What a hold of ours lives in.
pub(crate) fn grant(hold: &Hold) -> Result<Arc<Grant>> {
    let foreign = || Error::new(ErrorKind::Internal, "a hold of another backend was given to Consul");
    hold.shared_session::<Grant>().ok_or_else(foreign)
}

impl Locks {
    pub(crate) async fn renew(self: Arc<Self>, holds: Vec<Renewal>) -> Vec<Result<Standing>> {
        // A session that lives does not prove that its key is there: an operator may have deleted it.
        let kept = join_all(holds.iter().map(|hold| self.keep_alive(hold)));
        let stand = join_all(holds.chunks(MOST).map(|batch| self.stand(batch)));
        let (kept, stand) = join(kept, stand).await;
        let answers = kept.into_iter().zip(stand.into_iter().flatten()).map(|answers| match answers {
            (Ok(None), _) | (_, Ok(false)) => Ok(Standing::Lost),
            (Ok(Some(validity)), Ok(true)) => Ok(Standing::Renewed(validity)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        });
        answers.collect()
    }

    /// `None`: the session has ended.
    async fn keep_alive(&self, hold: &Renewal) -> Result<Option<Validity>> {
        let since = session::renew(&self.http, &hold.grant.session).await?;
        Ok(since.map(|since| Validity::new(since, hold.ttl)))
    }

    /// Whether each hold's key is its session's. The leader answers, after a round with the other servers.
    async fn stand(&self, holds: &[Renewal]) -> Vec<Result<bool>> {
        let permits: Vec<String> = holds.iter().map(|hold| hold.grant.name.permit(&hold.grant.session)).collect();
        let ops = holds.iter().zip(&permits).map(|(Renewal { grant, .. }, permit)| {
            Op::held(if grant.is_permit { permit } else { &grant.name.lock }, &grant.session)
        });
        match txn::run(&self.http, &ops.collect::<Vec<_>>()).await {
            Ok(Outcome::Done(_)) => holds.iter().map(|_| Ok(true)).collect(),
            // It names every operation that failed.
            Ok(Outcome::Refused(lost)) => {
                (0..holds.len()).map(|at| Ok(lost.iter().all(|failure| failure.op_index != at))).collect()
            }
            Err(error) => holds.iter().map(|_| Err(error.again())).collect(),
        }
    }
}
