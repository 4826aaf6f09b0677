//! Renews holds: decided by a majority, and sent to every node.

use std::sync::Arc;

use ::redis::Cmd;
use dlock_contract::{Claim, Hold, Result, Standing, Validity};

use super::attempt::{Round, is_one, round_of};
use super::node::{Link, Node};
use super::round::{Patience, ask};
use super::tally::{NodeCount, decided};
use super::{Redlock, millis};
use dlock_redis::internal::connection::{call, is_unknown_script, on};
use dlock_redis::internal::in_batches;
use dlock_redis::internal::layout::LockName;
use dlock_redis::internal::scripts::SCRIPTS as SINGLE;

impl Redlock {
    pub(super) async fn renew_all<'a>(&self, holds: &'a [&'a Hold]) -> Vec<Result<Standing>> {
        in_batches(holds, |batch| self.renew_batch(batch)).await
    }

    async fn renew_batch(&self, holds: &[&Hold]) -> Result<Vec<Result<Standing>>> {
        let rounds = holds.iter().map(|hold| Ok((hold.claim.clone(), round_of(hold)?))).collect::<Result<Vec<_>>>()?;
        let rounds = Arc::new(rounds);
        let patience = holds.iter().map(|hold| hold.claim.ttl).min().map_or(Patience::FIRST, Patience::of_renewal);
        let nodes = self.nodes.len();
        let from = self.clock.now();
        let mut answers = ask(&self.nodes, 0..nodes, patience, move |node, link| {
            let rounds = rounds.clone();
            async move { renew_on(&node, &link, &rounds).await }
        })?;
        let (mut counts, mut unable) = (vec![NodeCount::default(); holds.len()], Vec::new());
        while counts.iter().any(|count| count.decision(nodes).is_none())
            && let Some((_, renewed)) = answers.next().await
        {
            match renewed {
                Ok(renewed) => {
                    counts.iter_mut().zip(renewed).for_each(|(count, renewed)| match renewed {
                        Ok(renewed) => count.add(renewed),
                        Err(error) => unable.push(error.into()),
                    });
                }
                Err(why) => unable.push(why),
            }
        }
        let standing = |(hold, count): (&&Hold, &NodeCount)| match decided(count, nodes, &unable)? {
            true => Ok(Standing::Renewed(Validity::new(from, hold.claim.ttl))),
            false => Ok(Standing::Lost),
        };
        Ok(holds.iter().zip(&counts).map(standing).collect())
    }
}

async fn renew_on(node: &Node, link: &Link, rounds: &[(Arc<Claim>, Arc<Round>)]) -> Result<Vec<Result<bool>>> {
    let mut answers = Vec::new();
    // The second time by the script's text, if the server has lost it.
    for whole in [false, true] {
        let renew = |(claim, round): &(Arc<Claim>, Arc<Round>)| {
            call(&SINGLE.renew, whole, &|command: &mut Cmd| {
                on(command, LockName(&claim.key)).arg(&round.value).arg(millis(claim.ttl));
            })
        };
        answers = node.pipeline(link, rounds.iter().map(renew)).await?;
        if !answers.iter().any(is_unknown_script) {
            break;
        }
    }
    Ok(answers.iter().map(is_one).collect())
}
