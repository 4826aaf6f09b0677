//! The memory store with faults on demand: it lies, hangs and fails.

mod offers;
mod powers;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use dlock_contract::{
    Attempt, Backend, Batch, Claim, Exchange, Expiry, Health, Hold, Inspect, Keeps, Periods, Profile, Queue, Released,
    Settle, Signal, Standing, Tokens, Wake, WakeStyle,
};
use dlock_memory::Memory;
use dlock_runtime::{Clock, Error, ErrorKind, LockKey, LockState, Result};
use futures::future::{BoxFuture, pending};

pub(crate) use self::offers::Offers;
use super::line::Line;
use super::steps::{Op, Step};

/// A store that misbehaves on demand. Clones are one store.
#[derive(Clone)]
pub(crate) struct Faulty {
    memory: Memory,
    clock: Clock,
    offers: Arc<Offers>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    script: HashMap<Op, VecDeque<Step>>,
    always: HashMap<Op, Step>,
    calls: HashMap<Op, usize>,
    threads: Vec<String>,
    abandoned: Vec<Option<dlock_contract::Origin>>,
    stalled: Vec<Arc<Claim>>,
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
    session: Option<Arc<Line>>,
    /// Each silent signal keeps a clone while it lives.
    silent_signals: Arc<()>,
    /// The keys whose holders have worked in their holds.
    worked: Vec<LockKey>,
    /// The keys whose work was made final.
    settled: Vec<LockKey>,
}

impl Faulty {
    pub(crate) fn around(memory: &Memory, clock: &Clock, change: impl FnOnce(&mut Offers)) -> Self {
        let mut offers = Offers::all(memory.profile().clone());
        change(&mut offers);
        Self { memory: memory.clone(), clock: clock.clone(), offers: Arc::new(offers), state: Arc::default() }
    }

    /// Sets the faults of the next calls; later calls pass again.
    pub(crate) fn next(&self, op: Op, steps: impl IntoIterator<Item = Step>) {
        self.state.lock().unwrap().script.entry(op).or_default().extend(steps);
    }

    /// Sets what happens between the next grant and its answer.
    pub(crate) fn meanwhile(&self, work: impl FnOnce() + Send + 'static) {
        self.state.lock().unwrap().meanwhile = Some(Box::new(work));
    }

    /// Drops the faults of `next` that have not happened yet.
    pub(crate) fn behave(&self) {
        self.state.lock().unwrap().script.clear();
    }

    /// How many signals of [`Step::SilentSignal`] the callers keep.
    pub(crate) fn silent_signals(&self) -> usize {
        Arc::strong_count(&self.state.lock().unwrap().silent_signals) - 1
    }

    /// The session of all holds, where holds live in sessions.
    pub(crate) fn session(&self) -> Arc<Line> {
        let group = self.offers.group;
        self.state.lock().unwrap().session.get_or_insert_with(|| Arc::new(Line::new(group))).clone()
    }

    /// A holder works in its hold.
    pub(crate) fn work(&self, key: &LockKey) {
        self.state.lock().unwrap().worked.push(key.clone());
    }

    /// The keys whose work was made final, in that order.
    pub(crate) fn settled(&self) -> Vec<LockKey> {
        self.state.lock().unwrap().settled.clone()
    }

    /// Sets the fault of all calls from now on.
    pub(crate) fn always(&self, op: Op, step: Step) {
        self.state.lock().unwrap().always.insert(op, step);
    }

    pub(crate) fn calls(&self, op: Op) -> usize {
        self.state.lock().unwrap().calls.get(&op).copied().unwrap_or(0)
    }

    /// The names of the threads that have called, without repetitions.
    pub(crate) fn threads(&self) -> Vec<String> {
        let mut threads = self.state.lock().unwrap().threads.clone();
        threads.sort();
        threads.dedup();
        threads
    }

    /// For each abandon, the runtime whose connection it must use.
    pub(crate) fn abandoned(&self) -> Vec<Option<dlock_contract::Origin>> {
        self.state.lock().unwrap().abandoned.clone()
    }

    /// Runs the stalled abandons now. They undo whatever these owners have by then.
    pub(crate) async fn deliver(&self) {
        let stalled = std::mem::take(&mut self.state.lock().unwrap().stalled);
        assert!(!stalled.is_empty(), "nothing has stalled");
        for claim in stalled {
            self.memory.abandon(&claim).await.unwrap();
        }
    }

    fn stall(&self, step: Step, claim: &Arc<Claim>) {
        if let Step::Stall = step {
            self.state.lock().unwrap().stalled.push(claim.clone());
        }
    }

    fn step(&self, op: Op) -> Step {
        let mut state = self.state.lock().unwrap();
        *state.calls.entry(op).or_default() += 1;
        if state.threads.len() < 1000 {
            state.threads.push(std::thread::current().name().unwrap_or("?").to_owned());
        }
        let scripted = state.script.get_mut(&op).and_then(VecDeque::pop_front);
        scripted.or_else(|| state.always.get(&op).copied()).unwrap_or(Step::Pass)
    }

    /// Applies the faults that are the same for all calls. `None` if the call must be made and its answer counts.
    async fn fault<T>(&self, step: Step, call: impl Future<Output = T>) -> Result<T> {
        match step {
            Step::Fail => Err(Error::outage("scripted outage")),
            Step::GrantsAfter(time) => Err(Error::outage("scripted start").with_retry_after(Some(time))),
            Step::NeverSent => Err(Error::outage("scripted refusal of a connection").never_sent()),
            Step::Refuse => Err(Error::new(ErrorKind::PermissionDenied, "scripted refusal")),
            Step::ReadOnly => Err(Error::new(ErrorKind::NotPrimary, "scripted switch-over")),
            Step::Regressed => Err(Error::new(ErrorKind::FenceRegression, "scripted backup")),
            Step::Mixed => Err(Error::new(ErrorKind::KeyConflict, "scripted reader")),
            Step::Unknown => Err(Error::outage("scripted code").with_retryable(false)),
            Step::RefuseTtl => {
                let (min, max) = (std::time::Duration::from_secs(1), std::time::Duration::from_secs(9));
                Err(Error::new(ErrorKind::TtlOutOfRange { min, max }, "scripted refusal"))
            }
            Step::Hang | Step::Stall => pending().await,
            Step::LostReply => {
                call.await;
                pending().await
            }
            Step::Late(by) => {
                let until = self.clock.now().after(by);
                let answer = call.await;
                self.clock.sleep_until(until).await;
                Ok(answer)
            }
            _ => Ok(call.await),
        }
    }
}

fn panic_if(step: Step) {
    assert!(!matches!(step, Step::Panic), "scripted panic");
}

impl Backend for Faulty {
    fn profile(&self) -> &Profile {
        &self.offers
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        let step = self.step(Op::Acquire);
        panic_if(step);
        Box::pin(async move {
            if let Step::BrokenSignal = step {
                let signal = async { Err::<Signal, _>(Error::outage("the push connection is down")) };
                return Ok(Attempt::Contended(Wake::on(signal)));
            }
            if let Step::RefusedSignal = step {
                let refused = || Error::new(ErrorKind::PermissionDenied, "scripted refusal of a wait");
                return Ok(Attempt::Contended(Wake::on(async move { Err::<Signal, _>(refused()) })));
            }
            if let Step::SilentSignal = step {
                let alive = self.state.lock().unwrap().silent_signals.clone();
                return Ok(Attempt::Contended(Wake::on(async move {
                    let _alive = alive;
                    pending().await
                })));
            }
            if let Step::GiveWay = step {
                let inside = claim.inside().len();
                let signal = async move {
                    match inside {
                        0 => std::future::pending().await,
                        _ => Err::<Signal, _>(Error::new(ErrorKind::Conflict, format!("inside of {inside}"))),
                    }
                };
                return Ok(Attempt::Contended(Wake::on(signal)));
            }
            // A store that can only be polled has no line.
            let queue = if let WakeStyle::Poll { .. } = self.offers.wake { Queue::Leave } else { queue };
            let mut attempt = self.fault(step, self.memory.try_acquire(claim, queue)).await??;
            match &mut attempt {
                Attempt::AlreadyRun => {}
                Attempt::Acquired(hold) => {
                    if self.offers.expiry != Expiry::Lease {
                        hold.session = Some(self.session());
                    }
                    let meanwhile = self.state.lock().unwrap().meanwhile.take();
                    meanwhile.into_iter().for_each(|work| work());
                    match step {
                        Step::Stale(by) => hold.validity.from = hold.validity.from.before(by),
                        Step::Short(granted) => hold.validity.granted = granted,
                        _ => {}
                    }
                }
                Attempt::Contended(wake) => {
                    if let WakeStyle::Poll { .. } = self.offers.wake {
                        (wake.signal, wake.ask_by) = (None, None);
                    }
                }
            }
            Ok(attempt)
        })
    }

    fn expects_others(&self, _: &LockKey) {
        *self.state.lock().unwrap().calls.entry(Op::Expects).or_default() += 1;
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        let step = self.step(Op::Renew);
        panic_if(step);
        Box::pin(async move {
            match self.fault(step, self.memory.renew(holds)).await {
                Ok(mut answers) => {
                    for answer in &mut answers {
                        match (step, answer) {
                            (Step::Stale(by), Ok(Standing::Renewed(validity))) => {
                                validity.from = validity.from.before(by);
                            }
                            (Step::Short(granted), Ok(Standing::Renewed(validity))) => validity.granted = granted,
                            _ => {}
                        }
                    }
                    if let Step::Fewer = step {
                        answers.pop();
                    }
                    answers
                }
                Err(error) => holds.iter().map(|_| Err(Error::new(error.kind().clone(), error.to_string()))).collect(),
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        let step = self.step(Op::Release);
        panic_if(step);
        self.stall(step, &hold.claim);
        Box::pin(async move { self.fault(step, self.memory.release(hold)).await? })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        let step = self.step(Op::Abandon);
        panic_if(step);
        self.state.lock().unwrap().abandoned.push(claim.origin);
        self.stall(step, claim);
        Box::pin(async move { self.fault(step, self.memory.abandon(claim)).await? })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        let step = self.step(Op::Look);
        Box::pin(async move {
            let mut state = self.fault(step, self.memory.look(key)).await??;
            if let Step::Stale(by) = step {
                for left in state.holders.iter_mut().filter_map(|holder| holder.lease_left.as_mut()) {
                    *left = left.saturating_sub(by);
                }
            }
            Ok(state)
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let step = self.step(Op::Ready);
        Box::pin(async move {
            let health = self.fault(step, self.memory.ready()).await??;
            Ok(if let Step::Finding = step { health.finding("scripted finding") } else { health })
        })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        self.offers.keeps.then_some(self as &dyn Keeps)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        self.offers.periods.then_some(self as &dyn Periods)
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        self.offers.tokens.then_some(self as &dyn Tokens)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        self.offers.exchange.then_some(self as &dyn Exchange)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        self.offers.batch.then_some(self as &dyn Batch)
    }

    fn settle(&self) -> Option<&dyn Settle> {
        self.offers.settle.then_some(self as &dyn Settle)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.offers.inspect.then_some(self as &dyn Inspect)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let step = self.step(Op::Close);
        Box::pin(async move {
            let _ = self.fault(step, async {}).await;
        })
    }
}
