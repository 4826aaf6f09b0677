//! Releases a hold, and abandons a claim: decided by a majority, and sent to every node.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Cmd;
use dlock_contract::{BootInstant, Claim, Error, Hold, Released, Result};
use futures::future::join;

use super::Redlock;
use super::attempt::{Round, is_one, round_of};
use super::node::{Link, Node};
use super::nodes::majority;
use super::round::{Patience, Unable, ask};
use super::scripts::SCRIPTS;
use super::tally::{NodeAnswer, NodeCount, decided, shortage};
use dlock_redis::internal::connection::on;
use dlock_redis::internal::layout::LockName;
use dlock_redis::internal::scripts::{Lua, SCRIPTS as SINGLE};

impl Redlock {
    pub(super) async fn free(&self, hold: &Hold) -> Result<Released> {
        let round = round_of(hold)?;
        let nodes = self.nodes.len();
        let known = |count: &NodeCount| count.decision(nodes).is_some();
        let value = round.value.clone();
        let (count, unable) =
            self.undo(&hold.claim, &SINGLE.release, value, 0..nodes, known, BootInstant::NEVER).await?;
        Ok(match decided(&count, nodes, &unable)? {
            true => Released::Released,
            false => Released::NotOwner,
        })
    }

    /// Undoes one round on these nodes. Waits for the given number of confirmations, but not beyond the given moment. A
    /// node that cannot be reached keeps the value until the end of the ttl.
    pub(super) async fn give_back(
        &self,
        claim: &Arc<Claim>,
        round: &Round,
        which: impl Iterator<Item = usize>,
        awaited: usize,
        until: BootInstant,
    ) -> Result<()> {
        let heard = |count: &NodeCount| count.heard() >= awaited;
        // Only the sending counts; the outcome is not reported.
        self.undo(claim, &SINGLE.release, round.value.clone(), which, heard, until).await.map(drop)
    }

    /// Undoes everything of this owner.
    pub(super) async fn give_up(&self, claim: &Arc<Claim>) -> Result<()> {
        let nodes = self.nodes.len();
        // A minority may be unreachable for long. The claim's value there blocks nobody, and ends with the ttl.
        let is_majority = |count: &NodeCount| count.heard() >= majority(nodes);
        let owner = format!("{}{}", claim.owner.to_hex(), self.process);
        let (count, unable) =
            self.undo(claim, &SCRIPTS.abandon, owner, 0..nodes, is_majority, BootInstant::NEVER).await?;
        if is_majority(&count) { Ok(()) } else { Err(shortage(nodes, &unable).error) }
    }

    /// Sends a release of some kind to these nodes, whatever they said before, and waits for them all, but not long; a
    /// little longer for enough of them, but not beyond `until`.
    async fn undo(
        &self,
        claim: &Arc<Claim>,
        lua: &'static Lua,
        value: String,
        which: impl Iterator<Item = usize>,
        enough: impl Fn(&NodeCount) -> bool,
        until: BootInstant,
    ) -> Result<(NodeCount, Vec<Unable>)> {
        let short = self.clock.now().after(Patience::of(claim.ttl).answer.min(LATE_ANSWER_TIME));
        let (claim, value) = (claim.clone(), Arc::<str>::from(value));
        let request = move |node: Arc<Node>, link: Arc<Link>| {
            let (claim, value) = (claim.clone(), value.clone());
            async move { undo_on(&node, &link, &claim, lua, &value).await }
        };
        let mut answers = ask(&self.nodes, which, Patience::UNHURRIED, request)?.insist();
        let (mut count, mut unable) = (NodeCount::default(), Vec::new());
        loop {
            // Each node's own time is bounded too.
            let until = if enough(&count) { short } else { until.max(short) };
            match answers.next_until(&self.clock, until).await {
                Some((_, Ok(undone))) => {
                    count.add(undone);
                    if undone == NodeAnswer::Unknown {
                        let text =
                            "the lock is gone from a Redlock node, and it is unknown whether this release freed it";
                        unable.push(Error::outage(text).into());
                    }
                }
                Some((_, Err(why))) => unable.push(why),
                None => break,
            }
        }
        let late = || Unable::silent("a Redlock node did not answer in time".into());
        unable.extend((0..answers.pending()).map(|_| late()));
        Ok((count, unable))
    }
}

/// For answers that are waited for after the decision.
const LATE_ANSWER_TIME: Duration = Duration::from_millis(150);

/// Over the present runtime's connection, and over the one that the attempt went over if that is another: two have no
/// order, and on a slow node the attempt may be on its way still.
async fn undo_on(node: &Arc<Node>, link: &Arc<Link>, claim: &Claim, lua: &Lua, value: &str) -> Result<NodeAnswer> {
    let undo = |link: Arc<Link>| {
        let build = |command: &mut Cmd| {
            on(command, LockName(&claim.key)).arg(value);
        };
        async move { is_one(&node.script(&link, lua, build).await?) }
    };
    let origin = claim.origin.and_then(|runtime| node.link_of(runtime)).filter(|origin| !Arc::ptr_eq(origin, link));
    let Some(origin) = origin else { return undo(link.clone()).await.map(NodeAnswer::from) };
    // The other runtime may be blocked, or end at this moment.
    let limit = node.clock().now().after(LATE_ANSWER_TIME);
    let (here, there) = join(undo(link.clone()), node.clock().timeout_at(limit, undo(origin))).await;
    undone_by_two(here, there)
}

/// The outcome of one node's two answers. The second answer may be missing.
fn undone_by_two(here: Result<bool>, there: Option<Result<bool>>) -> Result<NodeAnswer> {
    match (here, there) {
        (_, Some(Ok(true))) => Ok(NodeAnswer::Yes),
        // It may be the other request that freed it.
        (Ok(false), None | Some(Err(_))) => Ok(NodeAnswer::Unknown),
        (here, _) => here.map(NodeAnswer::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_unanswered_request_may_have_freed_is_not_reported_as_another_owners() {
        let failed = || Err(Error::outage("reset"));
        for there in [None, Some(failed())] {
            assert_eq!(undone_by_two(Ok(false), there).unwrap(), NodeAnswer::Unknown);
        }
        assert_eq!(undone_by_two(Ok(false), Some(Ok(false))).unwrap(), NodeAnswer::No);
        for (here, there) in [(Ok(true), None), (Ok(false), Some(Ok(true))), (failed(), Some(Ok(true)))] {
            assert_eq!(undone_by_two(here, there).unwrap(), NodeAnswer::Yes);
        }
        assert!(undone_by_two(failed(), Some(Ok(false))).is_err());
        let mut count = NodeCount::default();
        for said in [NodeAnswer::No, NodeAnswer::No, NodeAnswer::Unknown, NodeAnswer::Unknown, NodeAnswer::Unknown] {
            count.add(said);
        }
        assert_eq!((count.decision(5), count.heard()), (None, 5));
    }
}
