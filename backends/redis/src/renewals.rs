//! Renewals: many holds in one request of bounded size; in a cluster one script for each slot.

use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{BootInstant, Claim, Error, Hold, Mode, Result, Standing, Validity};
use futures::future::join_all;

use super::combine::each;
use super::connection::{call, is_unknown_script, on};
use super::layout::{self, Name};
use super::scripts::{Lua, SCRIPTS};
use super::store::Redis;
use super::topology::cluster::spread;
use super::topology::slots::{number_of, slot_of};
use super::units::millis;
use super::{fault, scripts_shares, shares};

/// So many holds are renewed by one request at most; more would hold up everybody else's commands.
const BATCH: usize = 100;

/// Holds that one script renews; those of shared modes are each alone.
type Part<'a> = Vec<(usize, &'a Hold)>;

impl Redis {
    pub(super) async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        let mut order: Vec<_> = holds.iter().copied().enumerate().collect();
        if self.connections.cluster().is_some() {
            // Those of one slot side by side, so that few scripts serve a batch.
            order.sort_by_cached_key(|(_, hold)| number_of(slot_of(&hold.claim.key)));
        }
        // All at once: the way to the server is paid once, and of several servers a silent one holds up none of the others.
        let answers = join_all(order.chunks(BATCH).map(|batch| self.renew_batch(batch, holds.len()))).await;
        let mut answers: Vec<_> = answers.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, standing)| standing).collect()
    }

    /// `all`: so many holds are renewed with these.
    async fn renew_batch(&self, batch: &[(usize, &Hold)], all: usize) -> Vec<(usize, Result<Standing>)> {
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
        standings
    }

    /// One part for all plain holds, or in a cluster for those of each slot, which stand side by side.
    fn parts<'a>(&self, batch: &[(usize, &'a Hold)]) -> Vec<Part<'a>> {
        let slot = |hold: &Hold| self.connections.cluster().map(|_| slot_of(&hold.claim.key));
        let (plain, shared): (Part<'a>, Part<'a>) =
            batch.iter().partition(|(_, hold)| hold.claim.mode == Mode::Exclusive);
        let together = plain.chunk_by(|(_, one), (_, next)| slot(one) == slot(next)).map(<[_]>::to_vec);
        together.chain(shared.into_iter().map(|hold| vec![hold])).collect()
    }

    async fn ask_parts(&self, parts: &[Part<'_>], all: usize) -> Result<Vec<Result<Option<Value>>>> {
        let shortest = shortest_of(parts.iter().flatten());
        let shared = self.connections.for_renewals(shortest).await?;
        let ask = |calls| self.connections.heard(&shared, shortest, self.connections.each(&shared, calls));
        let timed = |part: &Part<'_>, whole| {
            let by = patience(part, all).map_or(BootInstant::NEVER, |patience| self.clock.now().after(patience));
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

    fn call_for(&self, part: &Part<'_>, whole: bool) -> Result<Cmd> {
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

/// So long the server of a part may take: the answers of the others are wanted in time. Where it is all there is, whoever
/// asks knows how long to wait.
fn patience(part: &Part<'_>, all: usize) -> Option<Duration> {
    (part.len() < all).then(|| (shortest_of(part) / 6).max(Duration::from_millis(50)))
}

fn shortest_of<'a>(holds: impl IntoIterator<Item = &'a (usize, &'a Hold)>) -> Duration {
    holds.into_iter().map(|(_, hold)| hold.claim.ttl).min().unwrap_or_default()
}

/// What the script has answered for each of its holds.
fn settled(part: &[(usize, &Hold)], answer: Value, from: BootInstant) -> Vec<(usize, Result<Standing>)> {
    let mut answers = each(Some(answer));
    let mut standing = |hold: &Hold| match answers.next().unwrap_or(Value::Nil) {
        Value::Int(1) => Ok(Standing::Renewed(Validity { from, granted: hold.claim.ttl })),
        Value::Int(0) => Ok(Standing::Lost),
        other if fault::is_wrong_type(&other) => Ok(Standing::Lost),
        other => Err(fault::unexpected(&other)),
    };
    part.iter().map(|(at, hold)| (*at, standing(hold))).collect()
}

/// One failure is that of each.
fn each_failed(part: &[(usize, &Hold)], error: &Error) -> Vec<(usize, Result<Standing>)> {
    part.iter().map(|(at, _)| (*at, Err(error.again()))).collect()
}

/// Renews holds in batches, each by one request; one failure is that of its batch.
pub async fn in_batches<'a, F>(holds: &'a [&'a Hold], renew: impl Fn(&'a [&'a Hold]) -> F) -> Vec<Result<Standing>>
where
    F: Future<Output = Result<Vec<Result<Standing>>>>,
{
    let batches = holds.chunks(BATCH);
    // All at once: the way to the server is paid once.
    let answers = join_all(batches.clone().map(renew)).await;
    let spread = |(batch, answer): (&[&Hold], Result<Vec<_>>)| {
        answer.unwrap_or_else(|error| batch.iter().map(|_| Err(error.again())).collect())
    };
    batches.zip(answers).flat_map(spread).collect()
}

/// The script that renews a claim of this mode, and what adds its arguments.
pub(super) fn renewal_of(claim: &Claim) -> (&'static Lua, fn(&mut Cmd, &Claim)) {
    match claim.mode {
        Mode::Exclusive => (&SCRIPTS.renew, renewal),
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
