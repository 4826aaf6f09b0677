//! One case of the suite, and how it is run.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dlock_contract::{Backend, Result as Answered};
use dlock_store::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::fixture::Fixture;
use crate::report::Outcome;
use crate::store::Store;
use crate::tested::{Stop, Tested};

/// Opens and closes a client of this store. It says which promises the store gives.
///
/// # Errors
/// As [`Store::open`].
pub async fn closed(store: &dyn Store) -> Answered<Arc<dyn Backend>> {
    let client = store.open(Clock::system()).await?;
    client.close().await;
    Ok(client)
}

/// One promise of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub(crate) name: &'static str,
    pub(crate) disturbs: bool,
    pub(crate) when: fn(&dyn Backend) -> Result<(), &'static str>,
    pub(crate) test: for<'a> fn(&'a Fixture<'a>) -> BoxFuture<'a, Tested>,
}

impl Case {
    /// The promise, as a sentence.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the case cuts the store off or restarts it. No other case may use the same store meanwhile.
    #[must_use]
    pub const fn disturbs(&self) -> bool {
        self.disturbs
    }

    /// Whether this store gives this promise, by its profile and its powers.
    #[must_use]
    pub fn applies(&self, store: &dyn Backend) -> bool {
        (self.when)(store).is_ok()
    }

    /// Tests the promise with fresh clients and fresh keys. A hang and a panic are failures. Needs a tokio runtime with
    /// timers and input/output.
    ///
    /// Takes a client of [`closed`], which one store may use for all cases.
    pub async fn run(&self, store: &dyn Store, closed: &Arc<dyn Backend>) -> Outcome {
        // dlock's own thread ends sleeps on the machine's clock. Without an engine, nobody else has started this
        // thread.
        if let Err(error) = dlock_store::background() {
            return Outcome::Failed(error.to_string());
        }
        // A busy machine can be too slow for a short lease. Such a run proves nothing, so it is repeated with longer
        // leases.
        let mut last = String::new();
        for pace in [1, 2, 4, 8] {
            match self.attempt(store, closed, pace).await {
                Ok(()) => return Outcome::Passed,
                Err(Stop::Late) => {}
                Err(Stop::Unanswered(error)) => last = format!(": {error}"),
                Err(Stop::Failed(text)) => return Outcome::Failed(text),
                Err(Stop::Skipped(text)) => return Outcome::Skipped(text),
                Err(Stop::NotApplicable(text)) => return Outcome::NotApplicable(text),
            }
        }
        Outcome::Failed(format!("the machine or the store was too slow for leases eight times as long as usual{last}"))
    }

    async fn attempt(&self, store: &dyn Store, closed: &Arc<dyn Backend>, pace: u32) -> Tested {
        let fixture = Fixture::new(store, closed, pace);
        (self.when)(&*fixture.closed).map_err(|missing| Stop::NotApplicable(missing.into()))?;
        let limit = fixture.limit();
        let test = AssertUnwindSafe((self.test)(&fixture)).catch_unwind();
        match tokio::time::timeout(limit, test).await {
            Ok(Ok(tested)) => tested,
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
                Err(Stop::Failed(format!("panicked: {text}")))
            }
            Err(_) => Err(Stop::Failed(format!("did not end within {limit:?}"))),
        }
    }
}

/// Names a case and its function.
macro_rules! case {
    ($name:literal, $when:ident, $test:ident) => {
        $crate::case::case!($name, $when, $test, false)
    };
    ($name:literal, $when:ident, $test:ident, disturbs) => {
        $crate::case::case!($name, $when, $test, true)
    };
    ($name:literal, $when:ident, $test:ident, $disturbs:literal) => {
        $crate::case::Case {
            name: $name,
            disturbs: $disturbs,
            when: $crate::when::$when,
            test: |fixture| Box::pin($test(fixture)),
        }
    };
}
pub(crate) use case;
