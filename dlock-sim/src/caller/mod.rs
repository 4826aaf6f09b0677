//! The callers: what they do with their locks, as users would, and what they see.

mod body;
mod fated;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Key, LossCause, Mode, OncePer};
use dlock_runtime::{Cohort, Held, Lock, OnLost, Registry, Renew, Wait};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use self::body::{Body, BodyState};
use self::fated::{Answers, Fated};
use crate::history::{Failure, Period, Share, Terms, What, Work};
use crate::plan::{Fate, Form, Lives, Offers, PlannedCall, Step};
use crate::store::nanos;
use crate::world::{ProcessClock, Shared};

/// The state that the callers of one process share.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) world: Shared,
    pub(crate) process: u32,
    pub(crate) clock: ProcessClock,
    pub(crate) registry: Registry,
    pub(crate) ttl: Duration,
    pub(crate) offers: Offers,
    /// The call and those inside of it: they stand still together.
    pub(crate) family: Rc<RefCell<Vec<u32>>>,
    /// The locks of the bodies around, with the calls that have them.
    pub(crate) around: Vec<(u32, Share, u32)>,
    pub(crate) bodies: Bodies,
    /// The calls that other tasks of the process are to poll.
    pub(crate) strangers: Rc<RefCell<Vec<LocalBoxFuture<'static, ()>>>>,
}

/// The bodies of a process that have begun and not ended, with their last noted belief.
pub(crate) type Bodies = Rc<RefCell<BTreeMap<u32, (HeldKeys, u64)>>>;

/// The holds of a body, in the order of their keys.
type HeldKeys = Rc<[(u32, Held)]>;

impl Caller {
    /// Makes these calls, one after another.
    pub(crate) async fn run(self, calls: Vec<PlannedCall>) {
        for call in calls {
            self.sleep(call.pause).await;
            if self.world.with(|world| world.is_calm()) {
                return;
            }
            Self { family: Rc::default(), ..self.clone() }.call(call).await;
        }
    }

    /// Until when the process believes that a body has its lock; the present if it does not.
    fn believes_until(&self, held: &HeldKeys) -> u64 {
        let now = self.world.with(|world| world.now);
        let until = |(_, held): &(u32, Held)| held.believed_until().map_or(now, |until| self.clock.world(until));
        held.iter().map(until).min().unwrap_or(now)
    }

    /// Notes what the process believes of bodies that do not act now.
    pub(crate) fn note_beliefs(&self) {
        for (id, (held, noted)) in &mut *self.bodies.borrow_mut() {
            let until = self.believes_until(held);
            // Of a lock that is lost it is noted once.
            let is_lost = held.iter().any(|(_, held)| held.believed_until().is_none());
            if until != *noted && (!is_lost || *noted > until) {
                *noted = until;
                self.world.add(self.process, *id, What::Believes { until });
                if is_lost && self.offers.lives != Lives::Alone {
                    let tokens = held.iter().filter_map(|(key, held)| Some((*key, held.fence().ok()?.get())));
                    let (process, tokens) = (self.process, tokens.collect());
                    self.world.with(|world| world.looks_whether_freed(process, tokens));
                }
            }
        }
    }

    async fn sleep(&self, time: Duration) {
        let clock = &self.clock.clock;
        clock.sleep_until(clock.now().after(time)).await;
    }

    fn call(self, planned: PlannedCall) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let id = self.world.with(|world| {
                world.last_call += 1;
                world.last_call
            });
            self.family.borrow_mut().push(id);
            if planned.keys.len() > 1 {
                self.world.with(|world| world.several.insert(id));
            }
            let runs = matches!(planned.form, Form::Run | Form::RunOn);
            let joins = self.joins(&planned);
            let terms = Terms {
                waits: nanos(if planned.form == Form::Leads {
                    planned.wait.max(Duration::from_millis(1))
                } else {
                    planned.wait
                }),
                lease: nanos(self.ttl),
                renewed: planned.renewed,
                cancels: planned.form == Form::Run,
                limited: runs && planned.limit().is_some(),
                inside_itself: joins.is_none() && self.around.iter().any(|(key, ..)| planned.keys.contains(key)),
                joins,
                max_hold: planned.max_hold.map(nanos),
                min_hold: planned.min_hold.map_or(0, nanos),
                once_per: planned.once_per,
                confirms: self.offers.lives == Lives::InOwnSession
                    && planned.form != Form::DroppedGuard
                    && joins.is_none(),
                share: planned.share,
                fair: planned.fair,
                work: (planned.works && joins.is_none()).then_some(match planned.form {
                    _ if planned.fails => Work::Fails,
                    Form::DroppedGuard => Work::Undone,
                    _ => Work::Counts,
                }),
            };
            let mut keys = planned.keys.clone();
            keys.sort_unstable();
            self.world.add(self.process, id, What::Asks { keys, terms });
            let mut answers = Answers { caller: self.clone(), id, answered: false };
            let fate = planned.fate;
            let call = Fated {
                call: Some(Box::pin(self.clone().locked(id, planned))),
                fate,
                handed: None,
                polls: 0,
                sleep: None,
                caller: self,
            };
            // Else it was dropped, or its body has panicked.
            if let Ok(Some(answer)) = AssertUnwindSafe(call).catch_unwind().await {
                answers.answer(answer);
            }
        })
    }

    /// The call whose hold this one joins.
    fn joins(&self, planned: &PlannedCall) -> Option<u32> {
        let PlannedCall { keys, share, min_hold, once_per, .. } = planned;
        let (_, outer, call) = self.around.iter().rfind(|(key, ..)| keys.contains(key))?;
        let covers = outer == share || (*outer, *share) == (Share::Write, Share::Read);
        (covers && planned.reentrant && min_hold.is_none() && once_per.is_none()).then_some(*call)
    }

    /// The call itself.
    async fn locked(self, id: u32, planned: PlannedCall) -> Result<(), Failure> {
        let keys = planned.keys.iter().map(|number| key(*number));
        if keys.len() > 1 {
            let guards = self.with_options(self.registry.lock_all(keys), id, &planned).acquire().await?;
            let fails = planned.fails;
            self.body(id, guards.held().cloned().collect(), planned).await;
            return if fails { Err(Failure::Body) } else { Ok(guards.release().await?) };
        }
        if planned.form == Form::Leads {
            let election = self.registry.elect(key(planned.keys[0])).ttl(self.ttl).candidate(id.to_string());
            let leadership = election.wait(planned.wait.max(Duration::from_millis(1))).campaign().await?;
            let fails = planned.fails;
            self.body(id, vec![Held::clone(&leadership)], planned).await;
            return if fails { Err(Failure::Body) } else { Ok(leadership.resign().await?) };
        }
        let lock = self.with_options(self.registry.lock(key(planned.keys[0])), id, &planned);
        match planned.form {
            Form::Run | Form::RunOn => {
                let fails = planned.fails;
                if !fails && !planned.works {
                    return Ok(lock.run(|held| self.body(id, vec![held], planned)).await?);
                }
                let output = if fails { Err(Failure::Body) } else { Ok(()) };
                lock.run_fallible(|held| self.body(id, vec![held], planned).map(move |()| output)).await
            }
            Form::Guard | Form::DroppedGuard | Form::Leads => {
                let guard = lock.acquire().await?;
                let (is_released, fails) = (planned.form == Form::Guard, planned.fails);
                self.body(id, vec![Held::clone(&guard)], planned).await;
                if fails {
                    return Err(Failure::Body);
                }
                let checked = guard.check();
                Ok(if is_released { guard.release().await } else { checked }?)
            }
        }
    }

    fn with_options<K>(&self, lock: Lock<K>, id: u32, planned: &PlannedCall) -> Lock<K> {
        let wait = if planned.wait.is_zero() { Wait::None } else { Wait::UpTo(planned.wait) };
        // The store knows the call by the name.
        let mut lock =
            lock.ttl(self.ttl).wait(wait).name(id.to_string()).mode(mode(planned.share)).reentrant(planned.reentrant);
        if !planned.renewed {
            lock = lock.renew(Renew::Off);
        }
        if let Some(max_hold) = planned.max_hold {
            lock = lock.max_hold(max_hold);
        }
        if planned.fair {
            lock = lock.fair(true);
        }
        if let Some(min_hold) = planned.min_hold {
            lock = lock.min_hold(min_hold);
        }
        if let Some(Period { length, rerun }) = planned.once_per {
            lock = lock.once_per(OncePer::new(Duration::from_nanos(length)).rerun(rerun));
        }
        let is_plain = planned.share == Share::Exclusive
            && !planned.fair
            && planned.min_hold.is_none()
            && planned.once_per.is_none();
        if planned.cohort && planned.renewed && self.offers.tokens && is_plain {
            lock = lock.cohort(Some(Cohort { passes: 4, span: None }));
        }
        if let Form::Run | Form::RunOn = planned.form
            && let Some(timeout) = planned.limit()
        {
            lock = lock.timeout(timeout);
        }
        lock.on_lost(if planned.form == Form::Run { OnLost::Cancel } else { OnLost::Continue })
    }

    /// `held`: in the order in which the keys are written.
    fn body(&self, id: u32, held: Vec<Held>, planned: PlannedCall) -> Body {
        let mut inner = self.clone();
        if let Form::Run | Form::RunOn = planned.form {
            inner.around.extend(planned.keys.iter().map(|key| (*key, planned.share, id)));
        }
        let mut held: Vec<_> = planned.keys.iter().copied().zip(held).collect();
        held.sort_unstable_by_key(|(key, _)| *key);
        let works = planned.works && self.joins(&planned).is_none();
        let steps = Box::pin(inner.steps(planned));
        Body { caller: self.clone(), id, works, held: held.into(), steps, state: BodyState::New }
    }

    async fn steps(self, planned: PlannedCall) {
        for step in planned.steps {
            match step {
                Step::Sleeps(time) => self.sleep(time).await,
                Step::Computes(time) => self.world.with(|world| world.compute(self.process, time)),
                Step::Nested(call) => self.clone().call(*call).await,
            }
        }
        if planned.fate == Fate::Panics {
            // Without the panic's message.
            resume_unwind(Box::new("planned"));
        }
    }
}

fn key(number: u32) -> Key {
    Key::text(["a", "b", "c"][number as usize % 3])
}

fn mode(share: Share) -> Mode {
    match share {
        Share::Exclusive => Mode::Exclusive,
        Share::Read => Mode::Read,
        Share::Write => Mode::Write,
        Share::Permit { of } => Mode::Permits(NonZeroU32::MIN.saturating_add(of - 1)),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        failure(error.kind())
    }
}

fn failure(kind: &ErrorKind) -> Failure {
    match kind {
        ErrorKind::Busy => Failure::Busy,
        ErrorKind::WaitTimeout => Failure::WaitTimeout,
        ErrorKind::Outage => Failure::Outage,
        ErrorKind::Lost(LossCause::MaxHold) => Failure::MaxHold,
        ErrorKind::Lost(_) => Failure::Lost,
        ErrorKind::BodyTimeout => Failure::BodyTimeout,
        ErrorKind::WouldDeadlock => Failure::WouldDeadlock,
        ErrorKind::ShutDown => Failure::ShutDown,
        ErrorKind::KeyConflict => Failure::KeyConflict,
        ErrorKind::AlreadyRun => Failure::AlreadyRun,
        ErrorKind::CommitRefused => Failure::CommitRefused,
        ErrorKind::CommitUnknown => Failure::CommitUnknown,
        _ => Failure::Other,
    }
}
