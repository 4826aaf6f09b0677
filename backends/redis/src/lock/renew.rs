//! Renewals: many holds in one request of bounded size; in a cluster one script for each slot.

use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{BootInstant, Claim, Error, Hold, Mode, Result, Standing, Validity};
use futures::future::join_all;

use crate::cluster::keys::spread;
use crate::layout::name::LockName;
use crate::layout::slots::{number_of, slot_of};
use crate::layout::units::millis;
use crate::layout::value::LockValue;
use crate::lock::shared;
use crate::lock::store::Redis;
use crate::reply::fault;
use crate::reply::read::each;
use crate::scripts::call::{call, is_unknown_script, on};
use crate::scripts::exclusive::SCRIPTS;
use crate::scripts::lua::Lua;
use crate::scripts::shared::SHARED_SCRIPTS;

/// The most holds that one request renews. More would delay the commands of others.
const BATCH_LIMIT: usize = 100;

/// Holds that one script renews. A hold of a shared mode is a part of its own.
type SlotPart<'a> = Vec<(usize, &'a Hold)>;

impl Redis {
    pub(crate) async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        if self.connections.cluster().is_none() {
            return in_batches(holds, |batch| self.renew_batch(batch, holds.len())).await;
        }
        // Holds of one slot are neighbours, so that few scripts serve a batch.
        let mut order: Vec<_> = holds.iter().copied().enumerate().collect();
        order.sort_by_cached_key(|(_, hold)| number_of(slot_of(&hold.claim.key)));
        let (places, sorted): (Vec<usize>, Vec<&Hold>) = order.into_iter().unzip();
        let standings = in_batches(&sorted, |batch| self.renew_batch(batch, holds.len())).await;
        let mut placed: Vec<_> = places.into_iter().zip(standings).collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, standing)| standing).collect()
    }

    /// Renews one batch of `all` holds. Each hold has a standing of its own, so the batch never fails as a whole.
    async fn renew_batch(&self, batch: &[&Hold], all: usize) -> Result<Vec<Result<Standing>>> {
        let mut standings = Vec::with_capacity(batch.len());
        let mut parts = self.parts(batch);
        while !parts.is_empty() {
            let from = self.clock.now();
            let answers = match self.ask_parts(&parts, all).await {
                Ok(answers) => answers,
                Err(error) => {
                    standings.extend(each_failed(&parts.concat(), &error));
                    break;
                }
            };
            let mut torn = Vec::new();
            for (part, answer) in parts.into_iter().zip(answers) {
                match answer {
                    Ok(Some(answer)) => standings.extend(settled(&part, answer, from)),
                    // In the middle of a slot's move: each of these locks is at one of two servers.
                    Ok(None) if part.len() > 1 => torn.extend(part.into_iter().map(|hold| vec![hold])),
                    Ok(None) => standings.extend(each_failed(&part, &Error::outage("the cluster is moving the slot"))),
                    Err(error) => standings.extend(each_failed(&part, &error)),
                }
            }
            parts = torn;
        }
        standings.sort_unstable_by_key(|(at, _)| *at);
        Ok(standings.into_iter().map(|(_, standing)| standing).collect())
    }

    /// Splits a batch into parts: all plain holds, in a cluster those of each slot, and each hold of a shared mode
    /// alone.
    fn parts<'a>(&self, batch: &[&'a Hold]) -> Vec<SlotPart<'a>> {
        let slot = |hold: &Hold| self.connections.cluster().map(|_| slot_of(&hold.claim.key));
        let (plain, shared): (SlotPart<'a>, SlotPart<'a>) =
            batch.iter().copied().enumerate().partition(|(_, hold)| hold.claim.mode == Mode::Exclusive);
        let together = plain.chunk_by(|(_, one), (_, next)| slot(one) == slot(next)).map(<[_]>::to_vec);
        together.chain(shared.into_iter().map(|hold| vec![hold])).collect()
    }

    async fn ask_parts(&self, parts: &[SlotPart<'_>], all: usize) -> Result<Vec<Result<Option<Value>>>> {
        let shortest = shortest_of(parts.iter().flatten());
        let shared = self.connections.for_renewals(shortest).await?;
        let ask = |calls| self.connections.heard(&shared, shortest, self.connections.each(&shared, calls));
        let timed = |part: &SlotPart<'_>, whole| {
            let by =
                answer_wait(part, all).map_or(BootInstant::NEVER, |answer_wait| self.clock.now().after(answer_wait));
            Ok((self.call_for(part, whole)?, by))
        };
        let calls = parts.iter().map(|part| timed(part, false)).collect::<Result<Vec<_>>>()?;
        let mut answers = ask(calls).await?;
        // Again by the scripts' text, where a server has lost them.
        let is_unknown = |answer: &Result<_>| matches!(answer, Ok(Some(answer)) if is_unknown_script(answer));
        let unknown: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
        if !unknown.is_empty() {
            let calls = unknown.iter().map(|at| timed(&parts[*at], true)).collect::<Result<Vec<_>>>()?;
            for (at, answer) in unknown.into_iter().zip(ask(calls).await?) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    fn call_for(&self, part: &SlotPart<'_>, whole: bool) -> Result<Cmd> {
        let (lua, command) = match &part[..] {
            [(_, hold)] if hold.claim.mode != Mode::Exclusive => {
                let (lua, build) = renewal_of(&hold.claim);
                (lua, call(lua, whole, &|command: &mut Cmd| build(command, &hold.claim)))
            }
            _ => (&SCRIPTS.renew_all, call(&SCRIPTS.renew_all, whole, &|command: &mut Cmd| renewals(command, part))),
        };
        // A server to which the slot is moving must not take the keys that it has not yet for none.
        if self.connections.cluster().is_some() && lua.keys.is_some() { spread(&command, lua) } else { Ok(command) }
    }
}

/// How long the server of a part may take, so that the answers of the other parts come in time. `None` if the part is
/// everything: then the engine has its own limit.
fn answer_wait(part: &SlotPart<'_>, all: usize) -> Option<Duration> {
    (part.len() < all).then(|| (shortest_of(part) / 6).max(Duration::from_millis(50)))
}

fn shortest_of<'a>(holds: impl IntoIterator<Item = &'a (usize, &'a Hold)>) -> Duration {
    holds.into_iter().map(|(_, hold)| hold.claim.ttl).min().unwrap_or_default()
}

/// Reads the script's answer for each of its holds.
fn settled(part: &[(usize, &Hold)], answer: Value, from: BootInstant) -> Vec<(usize, Result<Standing>)> {
    let mut answers = each(Some(answer));
    let mut standing = |hold: &Hold| match answers.next().unwrap_or(Value::Nil) {
        Value::Int(1) => Ok(Standing::Renewed(Validity::new(from, hold.claim.ttl))),
        Value::Int(0) => Ok(Standing::Lost),
        other if fault::is_wrong_type(&other) => Ok(Standing::Lost),
        other => Err(fault::unexpected(&other)),
    };
    part.iter().map(|(at, hold)| (*at, standing(hold))).collect()
}

/// Gives each hold the same failure.
fn each_failed(part: &[(usize, &Hold)], error: &Error) -> Vec<(usize, Result<Standing>)> {
    part.iter().map(|(at, _)| (*at, Err(error.again()))).collect()
}

/// Renews holds in batches, each by one request. A failed request fails its batch.
pub async fn in_batches<'a, F>(holds: &'a [&'a Hold], renew: impl Fn(&'a [&'a Hold]) -> F) -> Vec<Result<Standing>>
where
    F: Future<Output = Result<Vec<Result<Standing>>>>,
{
    let batches = holds.chunks(BATCH_LIMIT);
    // All at once, so that the way to the server costs its time only once.
    let answers = join_all(batches.clone().map(renew)).await;
    let spread = |(batch, answer): (&[&Hold], Result<Vec<_>>)| {
        answer.unwrap_or_else(|error| batch.iter().map(|_| Err(error.again())).collect())
    };
    batches.zip(answers).flat_map(spread).collect()
}

/// The script that renews a claim of this mode, and what adds its arguments.
pub(crate) fn renewal_of(claim: &Claim) -> (&'static Lua, fn(&mut Cmd, &Claim)) {
    match claim.mode {
        Mode::Exclusive => (&SCRIPTS.renew, renewal),
        _ => (&SHARED_SCRIPTS.renew, shared::renewal),
    }
}

fn renewals(command: &mut Cmd, part: &[(usize, &Hold)]) {
    command.arg(part.len());
    for (_, hold) in part {
        command.arg(LockName(&hold.claim.key));
    }
    for (_, hold) in part {
        command.arg(LockValue(&hold.claim)).arg(millis(hold.claim.ttl));
    }
}

fn renewal(command: &mut Cmd, claim: &Claim) {
    on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(millis(claim.ttl));
}
