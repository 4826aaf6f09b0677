//! Renewals: many holds in one request of bounded size; in a cluster one script for each slot.

use std::sync::Arc;

use ::redis::{Cmd, Value};

use super::combine::each;
use super::connection::{Connection, call, is_unknown_script, on};
use super::layout::{self, Name};
use super::scripts::{Lua, SCRIPTS};
use super::topology::slots::{number_of, slot_of};
use super::{Redis, fault, millis, scripts_shares, shares};
use crate::backend::{Claim, Hold, Standing, Validity};
use crate::clock::BootInstant;
use crate::error::{Error, Result};
use crate::options::Kind;

/// So many holds are renewed by one request at most; more would hold up everybody else's commands.
pub(super) const BATCH: usize = 100;

/// Holds that one script renews; those of shared kinds are each alone.
type Part<'a> = Vec<(usize, &'a Hold)>;

impl Redis {
    pub(super) async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        let mut order: Vec<_> = holds.iter().copied().enumerate().collect();
        if self.connections.cluster().is_some() {
            // Those of one slot side by side, so that few scripts serve a batch.
            order.sort_by_cached_key(|(_, hold)| number_of(slot_of(&hold.claim.key)));
        }
        let mut standings: Vec<_> = holds.iter().map(|_| Err(Error::outage("the renewal got no answer"))).collect();
        for batch in order.chunks(BATCH) {
            if let Err(error) = self.renew_batch(batch, &mut standings).await {
                fail(batch, error, &mut standings);
            }
        }
        standings
    }

    async fn renew_batch(&self, batch: &[(usize, &Hold)], standings: &mut [Result<Standing>]) -> Result<()> {
        let shared = self.connections.here().await?;
        let from = self.clock.now();
        let mut parts = self.parts(batch);
        while !parts.is_empty() {
            let answers = self.ask_parts(&shared, &parts).await?;
            let mut torn = Vec::new();
            for (part, answer) in parts.into_iter().zip(answers) {
                match answer {
                    Ok(Some(answer)) => settle(&part, answer, from, standings),
                    // In the middle of a slot's move: each of these locks is at one of two servers.
                    Ok(None) if part.len() > 1 => torn.extend(part.into_iter().map(|hold| vec![hold])),
                    Ok(None) => fail(&part, Error::outage("the cluster is moving the slot"), standings),
                    Err(error) => fail(&part, error, standings),
                }
            }
            parts = torn;
        }
        Ok(())
    }

    /// One part for all plain holds, or in a cluster for those of each slot, which stand side by side.
    fn parts<'a>(&self, batch: &[(usize, &'a Hold)]) -> Vec<Part<'a>> {
        let slot = |hold: &Hold| self.connections.cluster().map(|_| slot_of(&hold.claim.key));
        let (plain, shared): (Part<'a>, Part<'a>) =
            batch.iter().partition(|(_, hold)| hold.claim.kind == Kind::Exclusive);
        let together = plain.chunk_by(|(_, one), (_, next)| slot(one) == slot(next)).map(<[_]>::to_vec);
        together.chain(shared.into_iter().map(|hold| vec![hold])).collect()
    }

    async fn ask_parts(&self, shared: &Arc<Connection>, parts: &[Part<'_>]) -> Result<Vec<Result<Option<Value>>>> {
        let mut answers = Vec::new();
        // The second time by the scripts' text, if a server has lost them.
        for whole in [false, true] {
            let calls = parts.iter().map(|part| match &part[..] {
                [(_, hold)] if hold.claim.kind != Kind::Exclusive => {
                    let (lua, build) = renewal_of(&hold.claim);
                    call(lua, whole, &|command: &mut Cmd| build(command, &hold.claim))
                }
                _ => call(&SCRIPTS.renew_all, whole, &|command: &mut Cmd| renewals(command, part)),
            });
            answers = self.connections.each(shared, calls).await?;
            let unknown = |answer: &Result<_>| matches!(answer, Ok(Some(answer)) if is_unknown_script(answer));
            if !answers.iter().any(unknown) {
                break;
            }
        }
        Ok(answers)
    }
}

/// What the script has answered for each of its holds.
fn settle(part: &[(usize, &Hold)], answer: Value, from: BootInstant, standings: &mut [Result<Standing>]) {
    let mut answers = each(Some(answer));
    for (at, hold) in part {
        standings[*at] = match answers.next().unwrap_or(Value::Nil) {
            Value::Int(1) => Ok(Standing::Renewed(Validity { from, granted: hold.claim.ttl })),
            Value::Int(0) => Ok(Standing::Lost),
            other if fault::is_wrong_type(&other) => Ok(Standing::Lost),
            other => Err(fault::unexpected(&other)),
        };
    }
}

/// One failure is that of each.
fn fail(part: &[(usize, &Hold)], error: Error, standings: &mut [Result<Standing>]) {
    let (kind, retryable) = (error.kind().clone(), error.is_retryable());
    let mut first = Some(error);
    for (at, _) in part {
        let again = || Error::new(kind.clone(), "the renewal got no answer").with_retryable(retryable);
        standings[*at] = Err(first.take().unwrap_or_else(again));
    }
}

/// The script that renews a claim of this kind, and what adds its arguments.
pub(super) fn renewal_of(claim: &Claim) -> (&'static Lua, fn(&mut Cmd, &Claim)) {
    match claim.kind {
        Kind::Exclusive => (&SCRIPTS.renew, renewal),
        _ => (&scripts_shares::SCRIPTS.renew, shares::renewal),
    }
}

fn renewals(command: &mut Cmd, part: &[(usize, &Hold)]) {
    command.arg(part.len());
    for (_, hold) in part {
        command.arg(Name(&hold.claim.key));
    }
    for (_, hold) in part {
        command.arg(layout::Value(&hold.claim)).arg(millis(hold.claim.ttl));
    }
}

fn renewal(command: &mut Cmd, claim: &Claim) {
    on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(millis(claim.ttl));
}
