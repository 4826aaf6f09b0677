//! The request for one key: checked, and made an acquisition.

use std::future::ready;
use std::sync::Arc;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Note, Owner, Result, RunsOn};
use dlock_store::engine::background_of;
use dlock_store::engine::simulation::planted;
use dlock_store::is_ours;
use futures::FutureExt;

use super::acquisition::{Acquisition, Reported};
use super::wait::wait_end;
use crate::acquire::callers_thread::origin_and_thread;
use crate::acquire::context::Found;
use crate::acquire::joined::tell_ignored;
use crate::acquire::of_this_process::Acquiring;
use crate::acquire::opening::{Opened, OpensFirst};
use crate::acquire::request::{Request, blocks_our_thread};
use crate::events::event::{Event, GrantWay};
use crate::guard::Guard;
use crate::guard::scope;
use crate::options::Options;
use crate::options::supported;
use crate::queue::CohortState;
use crate::site::{Label, LockOfLabel};

/// Acquires one key, with a given end of the wait and a given attempt count. Dropping the returned future leaves nothing
/// behind in the store.
///
/// A request that is refused without asking the store is refused at once, so that the future need not keep it.
pub(crate) fn acquire<T: Send + 'static>(
    request: Request,
    key: &KeyBuf,
    wait_ends: Option<BootInstant>,
    attempts: u32,
    gives: impl Fn(Guard) -> T + Copy + Send + 'static,
) -> Acquiring<T> {
    match prepare(request, key, wait_ends) {
        Ok(Prepared::Asks(mut acquisition)) => {
            acquisition.attempts = attempts;
            // A combinator, since an `async` block would keep the future twice.
            Acquiring::new(acquisition.run().map(move |won| won.map(gives)))
        }
        Ok(Prepared::Joins(guard)) => Acquiring::new(ready(Ok(gives(guard)))),
        Ok(Prepared::OpensFirst(first)) => {
            let key = key.clone();
            Acquiring::new(async move {
                let Opened { request, wait_ends, .. } = first.open(&key).await?;
                acquire(request, &key, Some(wait_ends), attempts, gives).await
            })
        }
        Err(error) => Acquiring::new(ready(Err(error))),
    }
}

/// A request that is checked, before the store is asked.
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, into the future of the call; a box would be one more for each"
)]
pub(crate) enum Prepared {
    Asks(Acquisition),
    /// The request joins a hold of the enclosing call.
    Joins(Guard),
    /// The store was not opened yet.
    OpensFirst(Box<OpensFirst>),
}

/// The option that needs a begin or an end of its own in the store. A call that joins a hold has neither.
fn separate_effect(options: &Options) -> Option<&'static str> {
    match () {
        () if options.once_per.is_some() => Some("`once_per`"),
        () if options.min_hold.is_some() => Some("`min_hold`"),
        () if options.record => Some("a recorded run"),
        () => None,
    }
}

pub(crate) fn prepare(request: Request, key: &KeyBuf, wait_ends: Option<BootInstant>) -> Result<Prepared> {
    let context = &request.context;
    let shared = context.shared().clone();
    let since = shared.clock.now();
    let sensitive = request.options.sensitive;
    let with_key = |error: Error| error.with_key_or_hash(&key.0, sensitive);
    let store = match context.find(request.backend.as_deref()).map_err(with_key)? {
        Found::Open(store) => store,
        Found::Lazy(lazy) => return Ok(Prepared::OpensFirst(Box::new(OpensFirst::new(request, lazy, wait_ends)))),
    };
    let defaults = context.defaults();
    let named = |error: Error| with_key(error).with_backend(&store.name);
    context.check_open().map_err(named)?;
    let options = request.options.resolve(&defaults).map_err(named)?;
    let namespace = request.namespace.as_deref().unwrap_or(&defaults.namespace);
    let (key, identity) = store.identify(namespace, key).map_err(named)?;
    let lock = identity.into_lock();
    let named = |error: Error| store.named(error, (&key, &lock), sensitive);
    // One system call for three things that depend on the process: our thread, the random bytes, the note.
    let pid = std::process::id();
    background_of(pid).map_err(named)?;
    if request.parked.is_none() && is_ours() {
        // For example in a waker that drives a future to its end.
        return Err(named(blocks_our_thread()));
    }
    let outer =
        request.enclosing.as_ref().map_or_else(|| scope::holding(&store, &lock), |enclosing| enclosing.holding(&lock));
    // Its time may be over since the present poll of its body began.
    let outer = outer.filter(|outer| outer.check().is_ok());
    let shown = LockOfLabel::Key(key.0.clone());
    let mut label = Label::new(request.call_site, store.label.clone(), &request.options, shown);
    if let Some(outer) = outer {
        let is_covered = outer.hold.claim.mode.covers(request.options.mode);
        let covers = request.options.reentrant && (is_covered || planted("a call joins a hold that does not cover it"));
        let separate = separate_effect(&request.options);
        if covers && separate.is_none() {
            tell_ignored(&label, &request.options, &options, &outer);
            return Ok(Prepared::Joins(Guard::joined(outer)));
        }
        let mut text = format!(
            "`{}` began inside of the body of `{}`, which holds this lock; waiting for it would deadlock",
            label.place(),
            outer.label.place()
        );
        if let Some(option) = separate.filter(|_| covers) {
            text += &format!(", and a call with {option} cannot join the hold");
        }
        shared.events.tell_observers(&label, &Event::Deadlock { kind: ErrorKind::WouldDeadlock });
        return Err(named(Error::new(ErrorKind::WouldDeadlock, text)));
    }
    // For a list of keys it is noted once.
    #[cfg(debug_assertions)]
    if request.enclosing.as_ref().is_none_or(|enclosing| enclosing.mark_asked()) {
        context.order().note(&shared.events, &store, &label);
    }
    let profile = store.backend.profile();
    let trace = request.parked.as_ref().map_or_else(|| context.trace(), |parked| parked.trace.clone());
    let (origin, sole_thread) = if request.parked.is_some() { (None, None) } else { origin_and_thread() };
    let note =
        Note::new(pid, request.noted.as_deref().unwrap_or(label.name()), shared.clock.wall_ms(), trace.as_deref());
    let note = if request.options.election { note.of_election() } else { note };
    let note = if request.options.sensitive { note.of_sensitive() } else { note };
    let mut claim = Claim::plain(key.clone(), Owner::fresh_in(pid).map_err(named)?, options.ttl, note);
    claim.renewed = options.cadence.is_some();
    claim.mode = request.options.mode;
    claim.fair = request.options.fair;
    claim.once_per = request.options.once_per.map(Box::new);
    // Where holds are transactions, a store may see who waits for whom.
    if store.backend.settle().is_some() {
        claim.set_inside(scope::holds_in(&store));
    }
    claim.origin = origin.filter(|_| profile.runs_on == RunsOn::Caller);
    supported::check(&*store.backend, &claim, &request.options).map_err(named)?;
    let claim = Arc::new(claim);
    label.note_claim(claim.clone(), None);
    // A run that is passed on would be recorded under another owner's name.
    let cohort = request.options.cohort.filter(|_| !options.record);
    Ok(Prepared::Asks(Acquisition {
        wait_ends: wait_ends.unwrap_or_else(|| wait_end(since, options.wait)),
        label: Some(label),
        sole_thread,
        parked: request.parked,
        sorted: request.enclosing.is_some(),
        won: request.enclosing.as_ref().and_then(|_| scope::innermost_holds()).map(Arc::new),
        shared,
        store,
        claim,
        lock,
        cohort: cohort.map(|bounds| Box::new(CohortState::new(bounds, options.ttl))),
        options,
        since,
        attempts: 0,
        turn: None,
        passed: false,
        way: GrantWay::Request,
        counted: false,
        reported: Reported::default(),
        must_abandon: false,
        undo_unconfirmed: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acquire::context::Context;
    use crate::site::{CallSite, Named};

    fn asks(options: Options) -> Acquisition {
        let call_site = CallSite::Builder(Named::new("", ""));
        let request = Request::new(Context::with_clock(&dlock_store::Clock::system()), call_site, options, None);
        request.context.install("memory", Arc::new(dlock_memory::Memory::new())).unwrap();
        request.context.set_default("memory").unwrap();
        let key = crate::Key::text("k").into();
        let Prepared::Asks(acquisition) = prepare(request, &key, None).unwrap() else { panic!("nothing is held") };
        acquisition
    }

    /// A store may grant a lock that is renewed for less than its ttl at first, or let it share a lease.
    #[test]
    fn a_claim_says_whether_its_hold_will_be_renewed() {
        assert!(asks(Options::DEFAULT).claim.renewed);
        assert!(!asks(Options { renew: Some(crate::options::Renew::Off), ..Options::DEFAULT }).claim.renewed);
    }

    #[test]
    fn the_futures_of_an_uncontended_call_stay_small() {
        let future = asks(Options::DEFAULT).run();
        // Beyond 1 KiB glibc's allocator takes a lock that all threads share.
        let size = std::mem::size_of_val(&future);
        assert!(size <= 1024, "{size}");
    }
}
