//! The cause of a loss: asks the store whether an operator broke the hold.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::LossCause;
use futures::FutureExt;

use crate::events::store_event::Operation;
use crate::hold::tenure::Tenure;

/// The longest wait for the cause. The loss is certain, and the body must hear of it soon.
const LONGEST_CAUSE_REQUEST: Duration = Duration::from_millis(250);

/// The cause of a loss that the store has reported. The record of a broken hold stays with the tenure.
pub(crate) async fn cause_of_loss(tenure: &Arc<Tenure>) -> LossCause {
    if tenure.store.backend.inspect().is_none() {
        return LossCause::Store;
    }
    let record = tenure.store.ask(Operation::Inspect, LONGEST_CAUSE_REQUEST, tenure, |backend, tenure| {
        match backend.inspect() {
            Some(inspect) => inspect.record_of(&tenure.hold),
            None => Box::pin(ready(Ok(None))),
        }
    });
    // A store that panics here must not end the renewals of all others.
    if let Ok(Ok(Some(record))) = AssertUnwindSafe(record).catch_unwind().await {
        tenure.note_break(record);
    }
    tenure.told_cause()
}
