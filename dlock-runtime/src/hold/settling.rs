//! Makes the work of a body final, for stores in which the end of a hold decides about that work (ADR 0019).
//!
//! It runs between the body and the release, and nowhere else. Every other end of a hold undoes the work, so nothing
//! else needs to know of it: a drop, a panic, a loss, a shutdown.

use std::sync::Arc;

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::engine::simulation::planted;

use crate::events::store_event::Operation;
use crate::hold::store::LONGEST_REQUEST;
use crate::hold::tenure::Tenure;
use crate::options::supported::refused;

/// The body's own work inside of its hold.
pub(crate) enum Work {
    /// There is no work, or the work must be undone.
    None,
    /// There is work. The value says whether the body has succeeded; `None` if that is unknown.
    Done(Option<bool>),
}

pub(crate) fn work_of(tenure: &Tenure) -> Work {
    let succeeded = tenure.succeeded();
    match tenure.store.backend.settle() {
        Some(store) if planted("the work of a failed body is made final") && store.has_work(&tenure.hold) => {
            Work::Done(Some(true))
        }
        Some(store) if succeeded != Some(false) && store.has_work(&tenure.hold) => Work::Done(succeeded),
        _ => Work::None,
    }
}

/// Makes the work final. The hold has ended for this process already, so that no renewal takes the end for a loss.
pub(crate) async fn settle(tenure: &Arc<Tenure>, work: Work) -> Result<()> {
    if !matches!(work, Work::Done(Some(true))) {
        let text = "the body did something in the lock's own transaction, and this call cannot see whether the body has \
            succeeded, so the work was undone; use `run_fallible`, the attribute, or a guard with `release`";
        return Err(tenure.error(ErrorKind::CommitRefused, text));
    }
    // The outcome decides the result of the call, so it is waited for as long as for any request.
    let settled =
        tenure.store.ask(Operation::Settle, LONGEST_REQUEST, tenure, |backend, tenure| match backend.settle() {
            Some(store) => store.settle(&tenure.hold),
            None => refused("settle"),
        });
    settled.await.map_err(|error| tenure.named(settle_error(error)))
}

/// Keeps the two kinds that report the outcome of the work. After every other error the outcome is unknown.
fn settle_error(error: Error) -> Error {
    match error.kind() {
        ErrorKind::CommitRefused | ErrorKind::CommitUnknown => error,
        _ => {
            let text =
                "the store did not say whether the body's work is final: look for it before you run the body again";
            Error::new(ErrorKind::CommitUnknown, text).because(error)
        }
    }
}
