//! The guards of one call: nearly always one, several for several keys. They are won all or none, and released in
//! reverse.

use std::sync::Arc;
use std::task::{Context, Poll};

use dlock_contract::{Batch, Error, Result};

use crate::guard::scope;
use crate::guard::{Guard, Held, finish};
use crate::hold::tenure::Tenure;

/// Several locks that were acquired together; made by [`LockAll`](crate::LockAll). Dropping it releases them all,
/// and `let _ = …` drops it at once.
#[derive(Debug)]
#[must_use = "the locks are released when this is dropped: write `let _guards = …`, because `let _ = …` releases them at once"]
pub struct Guards {
    // Dropped in this order: the later ones first.
    more: More,
    first: Guard,
}

#[derive(Debug, Default)]
struct More(Vec<Guard>);

impl Drop for More {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl Guards {
    pub(crate) const fn one(guard: Guard) -> Self {
        Self { more: More(Vec::new()), first: guard }
    }

    /// Adds a guard, which is inside of those before.
    pub(crate) fn with(before: Option<Self>, guard: Guard) -> Self {
        match before {
            None => Self::one(guard),
            Some(mut guards) => {
                guards.more.0.push(guard);
                guards
            }
        }
    }

    /// The hold inside of which the next one is acquired.
    pub(crate) fn innermost_of(before: Option<&Self>) -> Option<Arc<Tenure>> {
        before.map_or_else(scope::innermost, |guards| Some(guards.innermost().clone()))
    }

    pub(crate) fn into_first(self) -> Guard {
        let Self { more, first } = self;
        drop(more);
        first
    }

    /// All guards are there, and the caller gets them.
    pub(crate) fn handed_out(self) -> Self {
        self.all().for_each(|guard| guard.0.handed_out());
        self
    }

    fn all(&self) -> impl Iterator<Item = &Guard> {
        std::iter::once(&self.first).chain(&self.more.0)
    }

    /// A look at each hold, in the order in which they were acquired.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.all().map(|guard| &**guard)
    }

    /// The same as a list, for a body that has asked for its guards.
    #[doc(hidden)]
    #[must_use]
    pub fn to_held(&self) -> Vec<Held> {
        self.held().cloned().collect()
    }

    /// Checks that all locks are still held. Local, without a request.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) of the first that is not.
    pub fn check(&self) -> Result<()> {
        self.all().try_for_each(|guard| guard.check())
    }

    /// Releases all, the last one first, and says whether all were held to the end.
    ///
    /// Where holds are transactions in which the caller has worked, this commits them, one after another. When one of them
    /// fails, the others that are left are rolled back.
    ///
    /// # Errors
    /// As [`Guard::release`].
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), if one of them had ended before; the others are released all the same.
    pub async fn release(self) -> Result<()> {
        let checked = self.check();
        self.ended_well(checked.is_ok());
        checked.and(finish_all(self).await)
    }

    /// Notes whether the body has succeeded, for stores that make its work final. For a joined hold, the enclosing call does
    /// that.
    pub(crate) fn ended_well(&self, succeeded: bool) {
        self.all().filter(|guard| !guard.is_joined()).for_each(|guard| guard.0.ended_well(succeeded));
    }

    /// The work that is left is not made final. That of a joined hold is the enclosing call's, which may go on.
    fn ended_badly(&self) {
        self.all().filter(|guard| !guard.is_joined()).for_each(|guard| guard.0.is_undone());
    }

    pub(crate) fn innermost(&self) -> &Arc<Tenure> {
        &self.more.0.last().unwrap_or(&self.first).0
    }

    /// Notes how the body ended; the release reports it to the stores. For a joined hold, the enclosing call does that.
    /// `None`: the body has ended, and nobody can see how. A record takes that for a success.
    pub(crate) fn ran(&self, succeeded: Option<bool>) {
        let recorded = succeeded.unwrap_or(true);
        self.all().filter(|guard| !guard.is_joined()).for_each(|guard| guard.0.ran(recorded));
        if let Some(succeeded) = succeeded {
            self.ended_well(succeeded);
        }
    }

    /// Runs the body, or a part of it, and notes a failure if it panics. The drop of the guards is too late for that:
    /// code that catches the panic may drop them at any time later.
    pub(crate) fn watch<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Panics<'a>(Option<&'a Guards>);
        impl Drop for Panics<'_> {
            fn drop(&mut self) {
                if let Some(guards) = self.0 {
                    guards.ran(Some(false));
                }
            }
        }
        let mut on_panic = Panics(Some(self));
        let output = body();
        on_panic.0 = None;
        output
    }

    /// Releases all in the background, the last one first. Reports no more about the body's end than is noted already.
    pub(crate) fn give_back(mut self) {
        while let Some(guard) = self.more.0.pop() {
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
    if !settles && !guards.more.0.is_empty() && backend.batch().is_some_and(Batch::takes_any_keys) {
        let Guards { mut more, first } = guards;
        let releases = std::iter::from_fn(|| more.0.pop()).chain([first]).map(finish);
        let releasing = futures::future::join_all(releases.collect::<Vec<_>>());
        return Box::pin(releasing).await.into_iter().fold(finished, |before, last| last.and(before));
    }
    while let Some(guard) = guards.more.0.pop() {
        finished = finish(guard).await.and(finished);
        if settles && finished.is_err() {
            guards.ended_badly();
        }
    }
    finish(guards.into_first()).await.and(finished)
}
