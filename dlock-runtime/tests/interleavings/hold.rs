//! The files of the engine about the schedule and the end of a hold, and the types that they name.

#[path = "../../src/hold/attend.rs"]
pub(crate) mod attend;
#[path = "../../src/hold/duties.rs"]
pub(crate) mod duties;
#[path = "../../src/hold/hold_state.rs"]
pub(crate) mod hold_state;
#[path = "../../src/hold/listeners.rs"]
pub(crate) mod listeners;
#[path = "../../src/hold/renewal_schedule.rs"]
pub(crate) mod renewal_schedule;

pub(crate) mod release {
    use std::sync::Arc;
    use std::time::Duration;

    use super::tenure::Tenure;

    pub(crate) fn release_bound(_: &Tenure) -> Duration {
        Duration::from_secs(1)
    }

    pub(crate) fn unpolled(_: Arc<Tenure>) {}
}

pub(crate) mod renewal {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use dlock_store::Clock;

    use super::tenure::{LONG, Tenure};

    pub(crate) const BATCH_LIMIT: usize = 256;

    /// The store prolongs each hold.
    pub(crate) async fn renew(clock: Clock, batch: Vec<Arc<Tenure>>) {
        let passed_on = batch.iter().any(|hold| hold.passed_on.load(Ordering::SeqCst));
        assert!(!passed_on, "a renewal left for a hold that was passed on");
        shuttle::future::yield_now().await;
        for hold in batch {
            {
                let mut duties = hold.duties();
                duties.renewals = duties.renewals.saturating_sub(1);
                duties.next_renewal = clock.now().after(LONG / 2);
            }
            hold.shared.renewals.put(&hold);
            hold.renewed.notify_one();
        }
    }
}

pub(crate) mod tenure {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, OnceLock, Weak};
    use std::time::Duration;

    use dlock_contract::{BootInstant, Hold, LossCause, Result};
    use dlock_store::Clock;
    use tokio::sync::Notify;

    use super::duties::Duties;
    use super::hold_state::HoldState;
    use crate::events::event::Event;
    use crate::sync::Mutex;

    /// No lease ends in a model.
    pub(crate) const LONG: Duration = Duration::from_secs(1000);

    pub(crate) struct RenewalSchedule {
        pub(crate) clock: Clock,
        pub(crate) table: Mutex<DueHolds>,
        pub(crate) groups: Mutex<BTreeMap<(usize, u64), Weak<SessionWatch>>>,
        pub(crate) earlier: Notify,
        pub(crate) started: AtomicBool,
        pub(crate) stopped: AtomicBool,
        pub(crate) dead: AtomicBool,
    }

    pub(crate) struct DueHolds {
        pub(crate) due: BTreeMap<(BootInstant, usize), Arc<Tenure>>,
        pub(crate) attended: Vec<Arc<Tenure>>,
        pub(crate) sleeping_until: BootInstant,
    }

    impl RenewalSchedule {
        pub(crate) fn watch_session(&self, _: &Arc<Tenure>) -> Result<()> {
            Ok(())
        }
    }

    pub(crate) struct SessionWatch;

    impl SessionWatch {
        pub(crate) fn forget(&self, _: &Tenure) {}
    }

    pub(crate) struct Events;

    impl Events {
        pub(crate) fn send(&self, (): &(), _: Event) {}
    }

    pub(crate) struct Shared {
        pub(crate) clock: Clock,
        pub(crate) renewals: Arc<RenewalSchedule>,
        pub(crate) events: Events,
    }

    pub(crate) struct Profile {
        pub(crate) expires_alone: bool,
    }

    pub(crate) struct Backend(pub(crate) Profile);

    impl Backend {
        pub(crate) fn profile(&self) -> &Profile {
            &self.0
        }
    }

    pub(crate) struct Store {
        pub(crate) backend: Backend,
    }

    pub(crate) struct Tenure {
        pub(crate) hold: Hold,
        pub(crate) store: Arc<Store>,
        pub(crate) shared: Arc<Shared>,
        pub(crate) label: (),
        pub(crate) state: HoldState,
        pub(crate) duties: Mutex<Duties>,
        pub(crate) session_watch: OnceLock<Arc<SessionWatch>>,
        /// Its release has passed it on, because no renewal was under way.
        pub(crate) passed_on: AtomicBool,
        pub(crate) renewed: Notify,
    }

    impl Tenure {
        pub(crate) fn new(hold: Hold, shared: Arc<Shared>, first_renewal: BootInstant) -> Self {
            Self {
                hold,
                store: Arc::new(Store { backend: Backend(Profile { expires_alone: true }) }),
                shared,
                label: (),
                state: HoldState::held(),
                duties: Mutex::new(Duties::new(first_renewal)),
                session_watch: OnceLock::new(),
                passed_on: AtomicBool::new(false),
                renewed: Notify::new(),
            }
        }

        pub(crate) fn is_held(&self) -> bool {
            self.state.is_held()
        }

        pub(crate) fn valid_until(&self) -> BootInstant {
            self.hold.validity.deadline()
        }

        pub(crate) fn near_expiry(&self) -> BootInstant {
            self.valid_until().before(LONG / 5)
        }

        pub(crate) fn overdue(&self, now: BootInstant) -> Option<LossCause> {
            (now >= self.valid_until()).then_some(LossCause::Deadline)
        }

        pub(crate) fn lose(&self, cause: LossCause) {
            if self.state.mark_lost(cause) {
                self.shared.renewals.remove(self);
            }
        }
    }
}
