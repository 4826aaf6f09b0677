//! Combines requests of many tasks: requests that come while the connection is busy leave together.
//!
//! Exists because the client handles each request by itself, with a future of more than 1 KiB and a place in a queue, which
//! costs more than the rest of a call: with 64 tasks and more, requests that leave together give about twice the throughput
//! (ADR 0014). A quiet connection sends at once: one task alone waits for nobody.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, Pipeline, Value};
use dlock_contract::{Claim, Error, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use tokio::sync::oneshot;

use crate::combine::batch::{Answers, Batch, BatchedRequest, UnderWay, Wants, add, draw};
use crate::layout::name::LockName;
use crate::layout::value::LockValue;
use crate::reply::fault;
use crate::scripts::call::{call, on};
use crate::scripts::exclusive::SCRIPTS;
use crate::socket::ended::Ended;
use crate::socket::first_step::first_step;
use crate::socket::server::Wire;
use crate::sync::{AtomicUsize, CallerRuntime, Mutex, MutexGuard, background, planted, sleep, yield_now};

/// The most requests that leave together. More would wait for each other's answers, while the server is idle.
const MOST_REQUESTS: usize = 64;

/// A batch leaves after this time, or after twice this time, even if the caller that began it is not polled.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// The way to the server that the tasks of one runtime share.
pub(crate) struct Combiner {
    wire: Wire,
    ended: Arc<Ended>,
    runtime: CallerRuntime,
    under_way: Arc<AtomicUsize>,
    next: Mutex<Batch>,
    /// Batches leave one after the other, while the next one already gathers.
    leaving: Mutex<()>,
}

/// A command that is sent directly before a request, in the same write. `then` gets its answer, or `None` if the
/// connection has ended.
pub(crate) struct Ahead {
    pub(crate) command: Cmd,
    pub(crate) then: Box<dyn FnOnce(Option<Value>) + Send>,
}

impl Combiner {
    pub(crate) fn new(wire: Wire, ended: Arc<Ended>, runtime: CallerRuntime) -> Self {
        let (under_way, next, leaving) = Default::default();
        Self { wire, ended, runtime, under_way, next, leaving }
    }

    /// Sends one command.
    pub(crate) fn one(
        self: &Arc<Self>,
        command: Cmd,
        ahead: Option<Ahead>,
    ) -> impl Future<Output = Result<Value>> + Send + use<> {
        if self.is_busy() {
            self.put_ahead(ahead);
            return Either::Left(self.join(|batch| batch.put([command])).answers().map(only));
        }
        if let Some(ahead) = ahead {
            return Either::Right(self.behind(ahead, [command]).map(only).boxed());
        }
        let (under_way, mut wire) = (UnderWay::new(&self.under_way), self.wire.clone());
        let ended = self.ended.clone();
        Either::Right(Box::pin(async move {
            let answer = ended.or(wire.client.send_packed_command(&command)).await;
            drop(under_way);
            answer.map_err(|error| wire.fault(&error))
        }))
    }

    /// Releases a lock as the release script does. 2 for one that must be released by that script, since others wait.
    pub(crate) fn release(self: &Arc<Self>, claim: &Claim) -> impl Future<Output = Result<Value>> + Send + use<> {
        if !self.is_busy() {
            let command = call(&SCRIPTS.release, false, &|command: &mut Cmd| {
                on(command, LockName(&claim.key)).arg(LockValue(claim));
            });
            return Either::Left(self.one(command, None));
        }
        let put = |batch: &mut Batch| {
            batch.releases.put(claim);
            Wants::Release
        };
        Either::Right(self.join(put).answers().map(only))
    }

    /// Sends commands in one go.
    pub(crate) async fn all(
        self: &Arc<Self>,
        commands: impl IntoIterator<Item = Cmd>,
        ahead: Option<Ahead>,
    ) -> Result<Answers> {
        if self.is_busy() {
            self.put_ahead(ahead);
            return self.join(|batch| batch.put(commands)).answers().await;
        }
        if let Some(ahead) = ahead {
            return self.behind(ahead, commands).await;
        }
        let mut pipeline = Pipeline::new();
        add(&mut pipeline, commands);
        self.alone(pipeline).await
    }

    /// Sends a command that may win a lock, and draws a token; gives both answers. A token is drawn after the command,
    /// and so after all earlier winners of the same lock; requests that leave together draw theirs together.
    pub(crate) fn drawing(
        self: &Arc<Self>,
        command: Cmd,
        ahead: Option<Ahead>,
    ) -> impl Future<Output = Result<Answers>> + Send + use<> {
        if self.is_busy() {
            self.put_ahead(ahead);
            let put = |batch: &mut Batch| {
                batch.pipeline.add_command(command);
                batch.draws += 1;
                Wants::Draw(batch.draws - 1)
            };
            return Either::Left(self.join(put).answers());
        }
        if let Some(ahead) = ahead {
            return Either::Right(self.behind(ahead, [command, draw(1)]));
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(command).add_command(draw(1));
        Either::Right(self.alone(pipeline))
    }

    fn alone(self: &Arc<Self>, pipeline: Pipeline) -> BoxFuture<'static, Result<Answers>> {
        let (under_way, mut wire) = (UnderWay::new(&self.under_way), self.wire.clone());
        let ended = self.ended.clone();
        Box::pin(async move {
            let answers = ended.or(wire.client.send_packed_commands(&pipeline, 0, pipeline.len())).await;
            drop(under_way);
            answers.map(Answers::from_vec).map_err(|error| wire.fault(&error))
        })
    }

    /// Sends commands with one ahead of them. As a task: the answer to that one concerns others too, whether or not this
    /// caller is polled.
    fn behind(
        self: &Arc<Self>,
        ahead: Ahead,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> BoxFuture<'static, Result<Answers>> {
        let mut pipeline = Pipeline::with_capacity(3);
        pipeline.add_command(ahead.command);
        add(&mut pipeline, commands);
        let (sender, receiver) = oneshot::channel();
        let answers = self.alone(pipeline);
        self.begin(async move {
            let rest = match answers.await {
                Ok(mut answers) if !answers.is_empty() => {
                    (ahead.then)(Some(answers.remove(0)));
                    Ok(answers)
                }
                other => {
                    (ahead.then)(None);
                    other
                }
            };
            // The caller may have left.
            let _ = sender.send(rest);
        });
        Box::pin(
            receiver.map(|answers| answers.unwrap_or_else(|_| Err(Error::outage("the connection to Redis has ended")))),
        )
    }

    /// Puts a command into the next batch, ahead of the request that is put there next.
    fn put_ahead(self: &Arc<Self>, ahead: Option<Ahead>) {
        let Some(Ahead { command, then }) = ahead else { return };
        let answer = self.join(|batch| batch.put([command])).answers();
        self.begin(async move { then(answer.await.ok().and_then(|mut answers| answers.pop())) });
    }

    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// Puts a request into the next batch.
    fn join(self: &Arc<Self>, put: impl FnOnce(&mut Batch) -> Wants) -> Joined {
        let (reply, answers) = oneshot::channel();
        let mut next = self.lock();
        let wants = put(&mut next);
        next.requests.push(BatchedRequest { wants, reply });
        if !planted("a batch that waits is not under way") {
            next.under_way.get_or_insert_with(|| UnderWay::new(&self.under_way));
        }
        if next.requests.len() == MOST_REQUESTS {
            self.leave(next);
            return Joined { began: None, answers };
        }
        let began = (next.requests.len() == 1).then(|| Began { combiner: self.clone(), number: next.number });
        let watched = std::mem::replace(&mut next.watched, true);
        drop(next);
        if !watched {
            self.watch();
        }
        Joined { began, answers }
    }

    /// Lets batches leave that stay behind: the caller that began one may not be polled, as in a `select!` whose other
    /// branch is at work, or behind a task that blocks its thread. Ends when nothing gathers any more.
    fn watch(self: &Arc<Self>) {
        let Ok(background) = background() else { return };
        let combiner = Arc::downgrade(self);
        background.spawn(async move {
            let mut last = None;
            loop {
                sleep(BATCH_TIME).await;
                let Some(combiner) = combiner.upgrade() else { return };
                let mut next = combiner.lock();
                if last.replace(next.number) != Some(next.number) {
                    continue;
                }
                if next.requests.is_empty() {
                    next.watched = planted("the watch ends and nobody knows");
                    return;
                }
                combiner.leave(next);
            }
        });
    }

    /// Sends the batch. As a task of its own: the caller that began it may be cancelled, and the others want their
    /// answers.
    fn leave(&self, mut next: MutexGuard<'_, Batch>) {
        let following = Batch::after(&next);
        let batch = std::mem::replace(&mut *next, following);
        let next = (!planted("a batch is let go before it leaves")).then_some(next);
        // Taken before the other is let go, so that batches keep their order.
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        drop(next);
        self.begin(batch.send(self.wire.clone(), self.ended.clone()));
        drop(leaving);
    }

    fn begin(&self, request: impl Future<Output = ()> + Send + 'static) {
        first_step(request, |rest| self.runtime.spawn(rest));
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in a batch. It does not keep the request's commands: they would make the future large.
struct Joined {
    /// Present if the request has begun its batch.
    began: Option<Began>,
    answers: oneshot::Receiver<Result<Answers>>,
}

impl Joined {
    async fn answers(self) -> Result<Answers> {
        let Self { began, answers } = self;
        if let Some(began) = began {
            // Other tasks that are ready to run can join the batch first.
            yield_now().await;
            drop(began);
        }
        answers.await.unwrap_or_else(|_| Err(Error::outage("the connection to Redis has ended")))
    }
}

/// Lets the batch leave when it is dropped: the caller that begins a batch may be cancelled before the batch leaves, and the
/// other requests would wait for the next look of dlock's own thread.
struct Began {
    combiner: Arc<Combiner>,
    number: u64,
}

impl Drop for Began {
    fn drop(&mut self) {
        if planted("a caller that goes away leaves its batch") {
            return;
        }
        let next = self.combiner.lock();
        if next.number == self.number {
            self.combiner.leave(next);
        }
    }
}

fn only(answers: Result<Answers>) -> Result<Value> {
    answers?.pop().ok_or_else(|| fault::unexpected(&Value::Nil))
}
