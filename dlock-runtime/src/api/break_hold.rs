//! Breaking a hold.

use std::future::IntoFuture;
use std::time::Duration;

use dlock_contract::engine::key_hash;
use dlock_contract::{Backend, BreakRecord, HoldId, Inspect, LockKey, Note, Result};
use dlock_store::{Clock, line};
use futures::future::BoxFuture;

use crate::api::inspect::unsupported;
use crate::api::lock::Lock;
use crate::api::registry::Registry;
use crate::events::lines::short;
use crate::events::store_event::{Operation, StoreEvent};

/// Ends another owner's hold of a lock. Made by [`break_lock`](crate::break_lock) and [`Lock::break_hold`]; await it.
///
/// It ends only the hold with this id, never the hold of a later holder. **The holder does not stop at once**: it hears
/// of the loss at its next renewal, after a third of its ttl at the latest, and until then two callers may work under
/// the lock. Fencing tokens keep the old one from writing. Its error then is `Lost` with the cause
/// [`Broken`](crate::LossCause::Broken), and names who broke the hold, when and why.
///
/// A hold that callers of one process pass on among themselves (`cohort`) has another id for each of them there. Other
/// processes see the one id that it has in the store, and end the hold with it whichever caller has it now.
///
/// Gives false if no hold of this id holds the lock.
///
/// The log line about it has the name of the lock from the holder's note, and the key, unless that note says that the key is
/// sensitive. Notes of older programs do not say so.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dlock_runtime::Error> {
/// # let registry = dlock_runtime::Registry::new();
/// # registry.install("memory", dlock_memory::Memory::new())?;
/// let guard = registry.lock("report").acquire().await?;
/// let id = registry.lock("report").holders().await?.holders[0].id.expect("a lock of dlock's");
/// assert!(registry.lock("report").break_hold(id).by("alice").because("web-3 hangs").await?);
/// let lost = guard.release().await.unwrap_err();
/// assert!(lost.to_string().contains("alice@") && lost.to_string().contains(", at ") && lost.to_string().contains("web-3 hangs"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is broken before it is awaited"]
pub struct BreakHold {
    lock: Lock,
    id: HoldId,
    operator: Option<String>,
    reason: String,
}

impl BreakHold {
    pub(crate) fn new(lock: Lock, id: HoldId) -> Self {
        Self { lock, id, operator: None, reason: String::new() }
    }

    /// The operator who breaks the hold. The record names this host behind it: `alice@web-3`. Default: the host and the
    /// process id.
    pub fn by(mut self, operator: impl Into<String>) -> Self {
        self.operator = Some(operator.into());
        self
    }

    /// Why. Default: nothing.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

impl IntoFuture for BreakHold {
    type Output = Result<bool>;
    type IntoFuture = BoxFuture<'static, Result<bool>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { lock, id, operator, reason } = self;
            let at_ms = lock.registry().clock().wall_ms();
            let here = Note::new(std::process::id(), "", at_ms, None);
            let host = here.host().unwrap_or("unknown");
            let operator = match operator {
                None => format!("{host}:{}", std::process::id()),
                Some(operator) if operator.ends_with(&format!("@{host}")) => operator,
                Some(operator) => format!("{operator}@{host}"),
            };
            let record = BreakRecord::new(&operator, at_ms, &reason);
            let Some(id) = lock.registry().id_in_store(id) else { return Ok(false) };
            let (record_text, is_sensitive) = (record.as_str().to_owned(), lock.is_sensitive());
            let (own_name, clock) = (lock.shown_name().to_owned(), lock.registry().clock().clone());
            let (began, look_clock) = (clock.now(), clock.clone());
            let request = lock.look_by(Operation::Break, move |backend, key| match backend.inspect() {
                Some(inspect) => break_hold((backend, inspect), look_clock, key, id, record),
                None => unsupported(),
            });
            let ((broken, key, note), store) = request.await?;
            if broken {
                store.observed.tell(&StoreEvent::BrokeHold);
                // Nothing is known of a hold whose note was not found.
                let is_shown = !is_sensitive && note.as_ref().is_some_and(|note| !note.is_sensitive());
                let key = if is_shown { key } else { key_hash(&key) };
                let name = note.as_ref().and_then(Note::site).map_or(own_name, Into::into);
                let (store, took) = (store.label.clone(), clock.now().since(began));
                line(move || {
                    let (backend, host) = (&*store.name, store.host.as_deref());
                    tracing::warn!(
                        target: "dlock", name, %key, backend, host, hold = %id, record = record_text, took = %short(took),
                        "this process has broken a hold"
                    );
                });
            }
            Ok(broken)
        })
    }
}

/// The longest look for the holder's note before the break.
const NOTE_LIMIT: Duration = Duration::from_secs(1);

/// Whether the hold is broken, with the lock's full name and the holder's note.
fn break_hold<'a>(
    (backend, inspect): (&'a dyn Backend, &'a dyn Inspect),
    clock: Clock,
    key: &'a LockKey,
    id: HoldId,
    record: BreakRecord,
) -> BoxFuture<'a, Result<(bool, String, Option<Note>)>> {
    Box::pin(async move {
        // After the break the note is gone. The log can do without it, so neither an error here nor a slow answer stops the break.
        let looked = clock.timeout_at(clock.now().after(NOTE_LIMIT), backend.look(key)).await;
        let state = looked.and_then(Result::ok).unwrap_or_default();
        let holder = state.holders.into_iter().find(|holder| holder.id == Some(id));
        let broken = inspect.break_hold(key, id, &record).await?;
        Ok((broken, key.as_str().to_owned(), holder.map(|holder| holder.note)))
    })
}

impl Lock {
    /// Ends the hold with this id; see [`BreakHold`].
    pub fn break_hold(self, id: HoldId) -> BreakHold {
        BreakHold::new(self, id)
    }
}

impl Registry {
    /// The id in the store of the hold that this id names; `None` if it names an earlier caller of a hold that is passed on
    /// (`cohort`). A hold that is about to be broken is passed on no more.
    fn id_in_store(&self, id: HoldId) -> Option<HoldId> {
        let shared = self.context().shared();
        match shared.renewals.holds().iter().find(|tenure| tenure.id() == id) {
            Some(tenure) => tenure.keep_here().then(|| HoldId::of(&tenure.hold.claim.owner)),
            None => (!shared.cohorts.has(id)).then_some(id),
        }
    }
}
