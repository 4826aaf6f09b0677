//! The guards of one call: nearly always one, several for several keys. They are won all or none, and released in
//! reverse.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use dlock_contract::{Batch, Error, LossCause, Result};

use crate::guard::held::Held;
use crate::guard::holds::Holds;
use crate::guard::{Guard, finish, scope};
use crate::hold::renewal::confirm;
use crate::hold::store::request_bound;
use crate::hold::tenure::Tenure;

/// Several locks that were acquired together; made by [`LockAll`](crate::LockAll). Dropping it releases them all,
/// and `let _ = …` drops it at once.
#[derive(Debug)]
#[must_use = "the locks are released when this is dropped: write `let _guards = …`, because `let _ = …` releases them at once"]
pub struct Guards {
    // Dropped in this order: the later ones first.
    more: Option<Box<More>>,
    first: Guard,
}

/// The part of a call with several keys, in a box: nearly every call has one key.
#[derive(Debug)]
struct More {
    later: Vec<Guard>,
    /// All holds, as the calls inside of the body see them.
    holds: Holds,
    /// For each key that was written, the place of its guard.
    as_written: Box<[usize]>,
}

impl Drop for More {
    fn drop(&mut self) {
        while self.later.pop().is_some() {}
    }
}

impl Guards {
    pub(crate) const fn one(guard: Guard) -> Self {
        Self { more: None, first: guard }
    }

    /// Adds a guard. It is released before the guards that were added earlier.
    pub(crate) fn with(before: Option<Self>, guard: Guard) -> Self {
        let Some(mut guards) = before else { return Self::one(guard) };
        let holds = guards.holds().with(guard.hold());
        let more = guards.more();
        more.holds = holds;
        more.later.push(guard);
        guards
    }

    fn more(&mut self) -> &mut More {
        let Self { more, first } = self;
        let one = || More { later: Vec::new(), holds: first.hold(), as_written: Box::default() };
        more.get_or_insert_with(|| Box::new(one()))
    }

    pub(crate) fn into_first(self) -> Guard {
        let Self { more, first } = self;
        drop(more);
        first
    }

    /// Gives all guards to the caller. `as_written` has the index of the guard for each key that was written.
    pub(crate) fn handed_out(mut self, as_written: Box<[usize]>) -> Self {
        self.all().for_each(|guard| guard.0.note_handed_out());
        self.more().as_written = as_written;
        self
    }

    /// Notes that the caller gets the guards now. The last guard is dropped first, so it has the note.
    pub(crate) fn note_got(&self) {
        self.later().last().unwrap_or(&self.first).note_got();
    }

    /// Begins the spans of the holds, as far as they have none.
    pub(crate) fn begin_spans(&mut self) {
        self.first.begin_span();
        self.more.iter_mut().flat_map(|more| &mut more.later).for_each(Guard::begin_span);
    }

    fn later(&self) -> &[Guard] {
        self.more.as_ref().map_or(&[], |more| &more.later)
    }

    fn pop(&mut self) -> Option<Guard> {
        self.more.as_mut()?.later.pop()
    }

    fn all(&self) -> impl Iterator<Item = &Guard> {
        std::iter::once(&self.first).chain(self.later())
    }

    /// The holds of its own. An enclosing call has the joined ones.
    fn own(&self) -> impl Iterator<Item = &Arc<Tenure>> {
        self.all().filter(|guard| !guard.is_joined()).map(|guard| &guard.0)
    }

    /// The holds, one for each key, in the order in which the keys were given. Two keys of one lock have the same hold.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        let as_written = self.more.as_ref().map_or(&[0][..], |more| &more.as_written);
        let guard = |place: &usize| match place.checked_sub(1) {
            None => Some(&self.first),
            Some(later) => self.later().get(later),
        };
        as_written.iter().filter_map(guard).map(|guard| &**guard)
    }

    /// The guards as a list, for a body that has asked for them.
    #[doc(hidden)]
    #[must_use]
    pub fn to_held(&self) -> Vec<Held> {
        self.held().cloned().collect()
    }

    /// Checks that all locks are still held. It sends no request.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) of the first lock that is not held any more.
    pub fn check(&self) -> Result<()> {
        self.all().try_for_each(|guard| guard.0.check())?;
        self.check_inside()
    }

    /// Asks the store whether all locks are still held. It waits no longer than for any request. A missing answer is an
    /// outage and no loss.
    pub(crate) async fn confirm(&self) {
        let Held(first) = &*self.first;
        let clock = &first.shared.clock;
        let answered = confirm(clock, self.all().map(|guard| guard.0.clone()).collect());
        clock.timeout_at(clock.now().after(request_bound(first.hold.claim.ttl)), answered).await;
    }

    /// Checks that the present caller is inside of the enclosing holds that this call has joined. It ignores holds that
    /// have ended.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if another caller goes on with this call.
    pub(crate) fn check_inside(&self) -> Result<()> {
        let mut joined = self.all().filter(|guard| guard.is_joined()).peekable();
        if joined.peek().is_none() {
            return Ok(());
        }
        let around: HashSet<_> = scope::chain().map(|held| Arc::as_ptr(&held)).collect();
        let outside = joined.find(|guard| guard.0.is_held() && !around.contains(&Arc::as_ptr(&guard.0)));
        outside.map_or(Ok(()), |guard| Err(guard.0.loss(LossCause::LeftBody)))
    }

    /// Releases all, the last one first, and says whether all were held to the end.
    ///
    /// If holds are transactions in which the caller has worked, this commits them, one after another. If a commit
    /// fails, the remaining transactions are rolled back.
    ///
    /// # Errors
    /// As [`Guard::release`].
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), if one of them had ended before; the others are released all the same.
    pub async fn release(self) -> Result<()> {
        let checked = self.check();
        self.note_end(checked.is_ok());
        checked.and(finish_all(self).await)
    }

    /// Notes whether the body has succeeded, for stores that make its work final. For a joined hold, the enclosing call does
    /// that.
    pub(crate) fn note_end(&self, succeeded: bool) {
        self.own().for_each(|tenure| tenure.note_end(succeeded));
    }

    pub(crate) fn innermost(&self) -> &Arc<Tenure> {
        &self.later().last().unwrap_or(&self.first).0
    }

    pub(crate) fn holds(&self) -> Holds {
        self.more.as_ref().map_or_else(|| self.first.hold(), |more| more.holds.clone())
    }

    /// Notes how the body ended. The release reports it to the stores. For a joined hold, the enclosing call does that.
    /// `None`: the body has ended, but its result is unknown. It is recorded as a success.
    pub(crate) fn note_run(&self, succeeded: Option<bool>) {
        let recorded = succeeded.unwrap_or(true);
        self.own().for_each(|tenure| tenure.note_run(recorded));
        if let Some(succeeded) = succeeded {
            self.note_end(succeeded);
        }
    }

    /// Runs a body, or the closure that makes one. No body begins without its lock: the grant may have expired before the caller
    /// was polled, or while an observer heard of it.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) of the first lock that is not held any more; the body is dropped then.
    pub(crate) fn begin<T>(&self, body: impl FnOnce() -> T) -> Result<T> {
        self.check()?;
        Ok(self.inside(body))
    }

    /// Runs the body, or a part of it, inside of these holds, and notes a failure if it panics. The drop of the guards is too
    /// late for that: code that catches the panic may drop them at any time later.
    pub(crate) fn inside<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Panics<'a>(Option<&'a Guards>);
        impl Drop for Panics<'_> {
            fn drop(&mut self) {
                if let Some(guards) = self.0 {
                    guards.note_run(Some(false));
                }
            }
        }
        let mut on_panic = Panics(Some(self));
        let output = scope::within(self.holds(), body);
        on_panic.0 = None;
        output
    }

    /// Releases all in the background, the last one first. Reports no more about the body's end than is noted already.
    pub(crate) fn give_back(mut self) {
        while let Some(guard) = self.pop() {
            guard.give_back();
        }
        self.into_first().give_back();
    }

    pub(crate) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<Error> {
        for guard in self.all() {
            if let Poll::Ready(loss) = guard.poll_lost(cx) {
                return Poll::Ready(loss);
            }
        }
        Poll::Pending
    }
}

/// Releases in place; see [`finish`]. If the store grants several locks together, they are also released together: sent
/// in reverse order, without waiting for each answer.
pub(crate) async fn finish_all(mut guards: Guards) -> Result<()> {
    let mut finished = Ok(());
    let backend = &guards.innermost().store.backend;
    // Work is made final one after another: when one fails, the rest is undone.
    let settles = backend.settle().is_some();
    if !settles && !guards.later().is_empty() && backend.batch().is_some_and(Batch::takes_any_keys) {
        let backwards = std::iter::from_fn(|| guards.pop()).collect::<Vec<_>>();
        let releasing = futures::future::join_all(backwards.into_iter().chain([guards.into_first()]).map(finish));
        return Box::pin(releasing).await.into_iter().fold(finished, |before, last| last.and(before));
    }
    while let Some(guard) = guards.pop() {
        finished = finish(guard).await.and(finished);
        if settles && finished.is_err() {
            // The work of a joined hold is the enclosing call's, which may go on.
            guards.own().for_each(|tenure| tenure.note_undone());
        }
    }
    finish(guards.into_first()).await.and(finished)
}
