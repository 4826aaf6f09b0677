//! Renews held locks, and declares a hold lost if it was not renewed in time.
//!
//! A registry has one timer. All renewals that are due for one store go into one request. A renewal that fails is tried
//! again until the hold's validity ends; only that end loses the hold. (Redisson's watchdog stopped for ever after one
//! failure, #775.)

use std::cmp::Reverse;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Result, Standing, Validity};
use dlock_store::engine::simulation::planted;
use dlock_store::{Clock, background};
use futures::FutureExt;
use futures::future::{join, join_all};
use tokio::sync::oneshot;

use crate::events::event::Event;
use crate::events::requesting::Requesting;
use crate::events::store_event::{Operation, RequestOutcome};
use crate::hold::duties::{FailedRenewal, on_tick};
use crate::hold::loss_cause::cause_of_loss;
use crate::hold::tenure::Tenure;

/// The most renewals in one request. A request of bounded size delays no other one for long.
pub(super) const BATCH_LIMIT: usize = 256;

/// Renews holds of one store now, ahead of their schedule and beside a renewal that is under way. That renewal may have
/// left too early, and its answer may take long. The returned future ends when the store has answered, or when the
/// answer no longer matters.
pub(crate) fn confirm(clock: &Clock, mut holds: Vec<Arc<Tenure>>) -> impl Future<Output = ()> + use<> {
    let mut answered = Vec::new();
    if let Ok(background) = background() {
        holds.retain(|tenure| tenure.begin_renewal());
        for batch in holds.chunks(BATCH_LIMIT) {
            let (renewal, (sender, receiver)) = (renew(clock.clone(), batch.to_vec()), oneshot::channel::<()>());
            background.spawn(renewal.map(|()| drop(sender)));
            answered.push(receiver);
        }
    }
    join_all(answered).map(drop)
}

/// Renews holds of one store by one request.
pub(super) async fn renew(clock: Clock, mut batch: Vec<Arc<Tenure>>) {
    batch.sort_by_key(|tenure| Reverse(renewal_bound(tenure)));
    let Some(first) = batch.first() else { return };
    let holds: Vec<_> = batch.iter().map(|tenure| &tenure.hold).collect();
    // The backend is called inside of the future, because it may also panic before it returns one.
    let mut request = pin!(AssertUnwindSafe(async { first.store.backend.renew(&holds).await }).catch_unwind());
    let sent = clock.now();
    let mut requesting = Requesting::begin(&first.store.observed, Operation::Renew, sent);
    // Each hold waits as long as its own ttl allows, so a short ttl does not cut off the answers of others.
    let mut waiting = &batch[..];
    while let Some(shortest) = waiting.last() {
        let bound = renewal_bound(shortest);
        let Some(answered) = clock.timeout_at(sent.after(bound), request.as_mut()).await else {
            let (longer, timed_out) = waiting.split_at(waiting.partition_point(|tenure| renewal_bound(tenure) > bound));
            waiting = longer;
            for tenure in timed_out {
                use_answer(&clock, tenure, Err(Error::outage(format!("the store did not answer within {bound:.1?}"))));
            }
            continue;
        };
        let mut answers = match answered {
            Ok(answers) if answers.len() == batch.len() => answers,
            Ok(_) => fail_all(&batch, || Error::new(ErrorKind::Protocol, "the backend did not answer for each hold")),
            Err(_) => fail_all(&batch, || Error::new(ErrorKind::Internal, "the backend panicked")),
        };
        note_health(first, &answers);
        if let Some(requesting) = requesting.take() {
            let failed = answers.iter().find_map(|answer| answer.as_ref().err());
            requesting.ended(RequestOutcome::of(failed.filter(|_| answers.iter().all(Result::is_err))));
        }
        let late = answers.split_off(waiting.len());
        let mut lost = Vec::new();
        for (tenure, answer) in waiting.iter().zip(answers) {
            match answer {
                Ok(Standing::Renewed(validity)) => use_answer(&clock, tenure, Ok(validity)),
                Ok(Standing::Lost) => lost.push(tenure),
                Err(error) => use_answer(&clock, tenure, Err(error)),
            }
        }
        // Last, because each loss asks the store for its cause.
        let lose = async |tenure: &Arc<Tenure>| tenure.lose(cause_of_loss(tenure).await);
        join(join_all(lost.into_iter().map(lose)), use_late_answers(&batch[waiting.len()..], late)).await;
        return;
    }
    if let Some(requesting) = requesting.take() {
        requesting.ended(RequestOutcome::Failed(ErrorKind::Outage));
    }
    // Every hold has stopped waiting, and the next renewal may be under way. But the store may have done this one.
    let Some(last) = batch.iter().map(|tenure| tenure.valid_until()).max() else { return };
    if let Some(Ok(answers)) = clock.timeout_at(last, request).await
        && answers.len() == batch.len()
    {
        use_late_answers(&batch, answers).await;
    }
}

/// Uses the answers for holds that have stopped waiting for them.
async fn use_late_answers(tenures: &[Arc<Tenure>], answers: Vec<Result<Standing>>) {
    join_all(tenures.iter().zip(answers).map(|(tenure, answer)| use_late_answer(tenure, answer))).await;
}

/// Uses a late answer: the hold is over, or it is valid for longer. The time of the next renewal is decided by the
/// request that came after it.
async fn use_late_answer(tenure: &Arc<Tenure>, answer: Result<Standing>) {
    assert!(!planted("a panic in the engine"), "a late answer");
    match answer {
        Ok(Standing::Renewed(validity)) if tenure.cadence().is_some() => {
            // The schedule now looks at the hold too early, and notices that.
            tenure.prolong(validity);
        }
        Ok(Standing::Lost) => {
            tenure.lose(cause_of_loss(tenure).await);
        }
        Ok(Standing::Renewed(_)) | Err(_) => {}
    }
}

/// Reports the outcome of one request to the store's circuit breaker.
fn note_health(first: &Tenure, answers: &[Result<Standing>]) {
    let store = &first.store;
    match answers.iter().find_map(|answer| answer.as_ref().err()) {
        Some(error) if answers.iter().all(Result::is_err) => store.note_failure(Operation::Renew, error),
        _ => {
            store.breaker.note_answer(&store.name);
            store.observed.note_answer();
        }
    }
}

/// The longest wait for the answer to a renewal: a third of the ttl, also where the renewal interval is shorter. With
/// several servers, a slow one needs this time.
fn renewal_bound(tenure: &Tenure) -> Duration {
    (tenure.hold.claim.ttl / 3).clamp(Duration::from_millis(50), Duration::from_secs(5))
}

/// No hold got an answer. Its state is unknown, which is not lost.
fn fail_all(batch: &[Arc<Tenure>], error: impl Fn() -> Error) -> Vec<Result<Standing>> {
    batch.iter().map(|_| Err(error())).collect()
}

/// Uses the answer to a renewal, which is no longer under way.
fn use_answer(clock: &Clock, tenure: &Arc<Tenure>, answer: Result<Validity>) {
    {
        let mut duties = tenure.duties();
        duties.renewals = duties.renewals.saturating_sub(1);
    }
    match answer {
        // A hold without renewals was only confirmed. Its validity ends when the caller expects it.
        Ok(_) if tenure.cadence().is_none() => {}
        answer => apply(clock, tenure, answer),
    }
}

/// Prolongs a hold or notes the failure, and schedules the next renewal.
pub(crate) fn apply(clock: &Clock, tenure: &Arc<Tenure>, answer: Result<Validity>) {
    let now = clock.now();
    let cadence = tenure.cadence().unwrap_or(Duration::MAX);
    let mut failed = None;
    let next = match answer {
        Ok(mut validity) => {
            if planted("a renewal counts from its answer") {
                validity.from = now;
            }
            // The answer says nothing about a hold that has ended meanwhile.
            if tenure.ended().is_none() {
                let remaining = tenure.valid_until().since(now);
                let held = now.since(tenure.since);
                let event = Event::Renewed { remaining, ttl: tenure.hold.claim.ttl, held };
                tenure.shared.events.send_to_observers(&tenure.label, event);
            }
            tenure.prolong(validity);
            let pause = cadence.min(validity.granted / 3 * 2);
            // Up to a tenth early. Otherwise holds that were taken together would be renewed together for ever.
            let next = on_tick(validity.from.after(pause.mul_f64(0.9 + fastrand::f64() / 10.0)), pause);
            // At least a short pause, also if the answer took long.
            next.max(now.after((pause / 4).min(Duration::from_millis(20))))
        }
        Err(error) => {
            if planted("a failed renewal prolongs") {
                tenure.prolong(Validity::new(now, tenure.hold.claim.ttl));
            }
            let remaining = tenure.valid_until().since(now);
            let event = Event::renewal_failed(&tenure.named(error), remaining);
            if let Event::RenewalFailed { reason, code, .. } = &event {
                failed = Some(FailedRenewal { reason: reason.clone(), code: code.clone() });
            }
            tenure.shared.events.send(&tenure.label, event);
            let pause = cadence.min(remaining / 4).max(Duration::from_millis(20));
            now.after(pause.mul_f64(0.5 + fastrand::f64() / 2.0))
        }
    };
    {
        let mut duties = tenure.duties();
        duties.next_renewal = if tenure.cadence().is_some() { next } else { BootInstant::NEVER };
        duties.near_told &= now >= tenure.near_expiry();
        duties.failed = failed;
    }
    tenure.shared.renewals.put(tenure);
}

#[cfg(test)]
mod tests;
