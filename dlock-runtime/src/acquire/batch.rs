//! The acquisition of several keys in one request, if the store can grant them together and all are free.

use std::sync::Arc;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Hold, Mode, Result, Together};
use dlock_store::engine::simulation::planted;

use super::acquisition::Acquisition;
use super::contend::may_pass;
use super::single::{Prepared, prepare};
use super::unpolled::watch;
use crate::acquire::request::Request;
use crate::events::store_event::Operation;
use crate::guard::guard_set::Guards;
use crate::options::{Options, Wait};
use crate::queue::Joined;

/// The outcome of one request for all keys.
pub(crate) enum BatchOutcome {
    /// All locks are held.
    Won(Guards),
    /// The keys must be acquired one after another. Has the number of attempts that were made.
    OneByOne(u32),
}

/// Asks once for all of these keys. Dropping the returned future leaves nothing behind in the store.
pub(crate) async fn acquire_batch(request: &Request, keys: &[KeyBuf], wait_ends: BootInstant) -> Result<BatchOutcome> {
    let Some(mut acquisitions) = ready(request, keys, wait_ends)? else { return Ok(BatchOutcome::OneByOne(0)) };
    match send(&mut acquisitions).await {
        Ok(Together::Acquired(holds)) if holds.len() != acquisitions.len() => Err(report_failure(
            &mut acquisitions,
            Error::new(ErrorKind::Protocol, "the backend did not return one hold for each claim"),
        )),
        Ok(Together::Acquired(holds)) => {
            let now = request.context.shared().clock.now();
            if holds.iter().any(|hold| hold.validity.deadline() <= now) && !planted("an expired batch is taken") {
                // The grants have expired. They are released.
                return Ok(BatchOutcome::OneByOne(1));
            }
            // A call that was not polled for long has lost a turn.
            Ok(begin(acquisitions, holds)?.map_or(BatchOutcome::OneByOne(1), BatchOutcome::Won))
        }
        Ok(refusal) => {
            acquisitions.iter_mut().for_each(|acquisition| acquisition.must_abandon = false);
            Ok(BatchOutcome::OneByOne(u32::from(matches!(refusal, Together::Contended))))
        }
        Err(error) => {
            if !error.may_have_left() || planted("a batch without an answer is forgotten") {
                acquisitions.iter_mut().for_each(|acquisition| acquisition.must_abandon = false);
            }
            let goes_on = acquisitions.first().is_some_and(|first| {
                let may_retry = first.options.retries > 0 || error.told_after().is_some();
                first.options.wait != Wait::None && may_retry && may_pass(&error)
            });
            // Everything left in the store is abandoned, and the next attempts wait for that behind our turns.
            if goes_on {
                return Ok(BatchOutcome::OneByOne(1));
            }
            acquisitions.iter().for_each(|acquisition| acquisition.tell_neighbours(&error));
            Err(report_failure(&mut acquisitions, error))
        }
    }
}

/// Prepares the acquisitions of all keys, with their turns. `None` if one turn is not free at once: a caller that waits
/// for a turn must have no other one.
fn ready(request: &Request, keys: &[KeyBuf], wait_ends: BootInstant) -> Result<Option<Vec<Acquisition>>> {
    let Options { mode, fair, attempts, .. } = request.options;
    // A single attempt is better spent on one key, because its answer names the holder.
    if keys.len() < 2 || mode != Mode::Exclusive || fair || attempts == Some(1) {
        return Ok(None);
    }
    let mut acquisitions = Vec::with_capacity(keys.len());
    for key in keys {
        let Prepared::Asks(mut acquisition) = prepare(request.clone(), key, Some(wait_ends))? else { return Ok(None) };
        let Joined::Turn(turn) = acquisition.join_now(None) else {
            return Ok(None);
        };
        acquisition.turn = Some(turn);
        acquisitions.push(acquisition);
    }
    Ok(Some(acquisitions))
}

async fn send(acquisitions: &mut [Acquisition]) -> Result<Together> {
    let mut claims: Vec<Arc<Claim>> = Vec::with_capacity(acquisitions.len());
    for acquisition in &mut *acquisitions {
        acquisition.count();
        acquisition.attempts = 1;
        acquisition.must_abandon = true;
        claims.push(acquisition.claim.clone());
    }
    let Some(first) = acquisitions.first() else { return Ok(Together::OneByOne) };
    first.store.breaker.admit(|| first.shared.clock.now())?;
    watch(&first.store);
    let (store, ttl) = (first.store.clone(), first.claim.ttl);
    let answer =
        first.store.ask(Operation::AcquireAll, first.attempt_bound(), &claims, |backend, claims| {
            match backend.batch() {
                Some(batch) => batch.try_acquire_all(claims),
                None => Box::pin(async { Ok(Together::OneByOne) }),
            }
        });
    let answer = first.shared.shutdown.or_bounded(answer).await?;
    let is_granted = answer.as_ref().map(|answer| matches!(answer, Together::Acquired(_)));
    store.findings.note_answer(ttl, is_granted);
    answer
}

/// Reports a failure of all keys once, for the first key.
fn report_failure(acquisitions: &mut [Acquisition], error: Error) -> Error {
    match acquisitions.first_mut() {
        Some(first) => first.report_failure(error),
        None => error,
    }
}

/// Begins all holds. Each is inside of the one before, as if they had been acquired one after another. `None` if the turn
/// of one was lost; then all are released.
fn begin(acquisitions: Vec<Acquisition>, holds: Vec<Hold>) -> Result<Option<Guards>> {
    let mut guards: Option<Guards> = None;
    for (mut acquisition, hold) in acquisitions.into_iter().zip(holds) {
        let Some(guard) = acquisition.finish(Ok(hold))? else { return Ok(None) };
        guards = Some(Guards::with(guards, guard));
    }
    guards.map(Some).ok_or_else(|| Error::new(ErrorKind::Internal, "a call for several locks has won none of them"))
}
