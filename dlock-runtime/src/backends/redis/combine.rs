//! Requests of many tasks in one: what comes while the connection is busy leaves together.
//!
//! The client handles each request by itself, with a future of more than 1 KiB and a place in a queue, which costs more
//! than the rest of a call. A quiet connection sends at once: one task alone waits for nobody.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;

use super::fault;
use super::scripts::FENCE;
use crate::background::Place;
use crate::error::{Error, Result};

/// So many requests leave together at most. More would wait for each other's answers, and the server for us.
const MOST: usize = 32;

/// The way to the server that the tasks of one runtime share.
pub(super) struct Combiner {
    client: MultiplexedConnection,
    runtime: Place,
    under_way: AtomicUsize,
    next: Mutex<Batch>,
}

/// Requests that will leave together.
#[derive(Default)]
struct Batch {
    /// Which one it is: whoever began one finds out whether it has left already.
    number: u64,
    pipeline: Pipeline,
    asked: Vec<Asked>,
    /// How many tokens are drawn for them, by one command at the end.
    draws: i64,
    /// From the first request on, so that nothing overtakes what waits here: an abandon comes after its acquire.
    under_way: Option<UnderWay>,
}

/// How many answers whose request waits for.
struct Asked {
    answers: usize,
    /// Which of the batch's tokens is its own, from zero.
    draw: Option<i64>,
    to: oneshot::Sender<Result<Vec<Value>>>,
}

impl Combiner {
    pub(super) fn new(client: MultiplexedConnection, runtime: Place) -> Self {
        Self { client, runtime, under_way: AtomicUsize::new(0), next: Mutex::default() }
    }

    /// Sends one command.
    pub(super) async fn one(self: &Arc<Self>, command: Cmd) -> Result<Value> {
        if self.is_busy() {
            let mut answers = self.together([command], false).await?;
            return answers.pop().ok_or_else(|| fault::unexpected(&Value::Nil));
        }
        let _under_way = UnderWay::new(self);
        let mut client = self.client.clone();
        let answer = Box::pin(client.send_packed_command(&command)).await;
        answer.map_err(|error| fault::client(&error))
    }

    /// Sends commands in one go.
    pub(super) async fn all(self: &Arc<Self>, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>> {
        if self.is_busy() {
            return self.together(commands, false).await;
        }
        let mut pipeline = Pipeline::new();
        add(&mut pipeline, commands);
        self.alone(&pipeline).await
    }

    /// Sends a command that may win a lock, and draws a token; gives both answers. A token is drawn after the command,
    /// and so after all earlier winners of the same lock; requests that leave together draw theirs together.
    pub(super) async fn drawing(self: &Arc<Self>, command: Cmd) -> Result<Vec<Value>> {
        if self.is_busy() {
            return self.together([command], true).await;
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(command).add_command(draw(1));
        self.alone(&pipeline).await
    }

    async fn alone(self: &Arc<Self>, pipeline: &Pipeline) -> Result<Vec<Value>> {
        let _under_way = UnderWay::new(self);
        let mut client = self.client.clone();
        let answers = Box::pin(client.send_packed_commands(pipeline, 0, pipeline.len())).await;
        answers.map_err(|error| fault::client(&error))
    }

    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    async fn together(self: &Arc<Self>, commands: impl IntoIterator<Item = Cmd>, draws: bool) -> Result<Vec<Value>> {
        let (to, answers) = oneshot::channel();
        let began = self.join(commands, draws, to);
        if let Some(began) = began {
            // All who are ready to run get the chance to come along.
            tokio::task::yield_now().await;
            drop(began);
        }
        answers.await.unwrap_or_else(|_| Err(Error::outage("the connection to Redis has ended")))
    }

    /// Puts a request into the next batch; whoever begins one must let it leave.
    fn join(
        self: &Arc<Self>,
        commands: impl IntoIterator<Item = Cmd>,
        draws: bool,
        to: oneshot::Sender<Result<Vec<Value>>>,
    ) -> Option<Began> {
        let mut next = self.lock();
        let before = next.pipeline.len();
        add(&mut next.pipeline, commands);
        let answers = next.pipeline.len() - before;
        let draw = draws.then_some(next.draws);
        next.draws += i64::from(draws);
        next.asked.push(Asked { answers, draw, to });
        next.under_way.get_or_insert_with(|| UnderWay::new(self));
        if next.asked.len() == MOST {
            self.leave(next);
            return None;
        }
        (next.asked.len() == 1).then(|| Began { combiner: self.clone(), number: next.number })
    }

    /// Sends the batch. As a task of its own: whoever began it may be cancelled, the others want their answers.
    fn leave(&self, mut next: MutexGuard<'_, Batch>) {
        let number = next.number + 1;
        let batch = std::mem::replace(&mut *next, Batch { number, ..Batch::default() });
        let mut sending = Box::pin(batch.send(self.client.clone()));
        // The first step hands it to the client; under the lock, so that batches keep their order.
        if sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.runtime.spawn(sending);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    async fn send(self, mut client: MultiplexedConnection) {
        let Self { mut pipeline, asked, draws, under_way, .. } = self;
        if draws > 0 {
            pipeline.add_command(draw(draws));
        }
        let answers = client.send_packed_commands(&pipeline, 0, pipeline.len()).await;
        drop(under_way);
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                for Asked { to, .. } in asked {
                    let _ = to.send(Err(fault::client(&error)));
                }
                return;
            }
        };
        let drawn = if draws > 0 { answers.pop() } else { None };
        let mut answers = answers.into_iter();
        for Asked { answers: own, draw, to } in asked {
            let mut own: Vec<Value> = answers.by_ref().take(own).chain(draw.map(|_| Value::Nil)).collect();
            if let (Some(number), Some(drawn), Some(token)) = (draw, &drawn, own.last_mut()) {
                *token = match drawn {
                    // The highest of all that were drawn is the answer.
                    Value::Int(highest) => Value::Int(highest - draws + 1 + number),
                    other => other.clone(),
                };
            }
            // Nobody waits any more for a request that was given up.
            let _ = to.send(Ok(own));
        }
    }
}

/// Draws so many tokens; the answer is the highest.
fn draw(tokens: i64) -> Cmd {
    let mut draw = Cmd::with_capacity(3, 48);
    draw.arg("INCRBY").arg(FENCE).arg(tokens);
    draw
}

fn add(pipeline: &mut Pipeline, commands: impl IntoIterator<Item = Cmd>) {
    for command in commands {
        pipeline.add_command(command);
    }
}

/// Lets the batch leave when it is dropped, also by a caller that is cancelled.
struct Began {
    combiner: Arc<Combiner>,
    number: u64,
}

impl Drop for Began {
    fn drop(&mut self) {
        let next = self.combiner.lock();
        if next.number == self.number {
            self.combiner.leave(next);
        }
    }
}

/// A request on its way, or a batch.
struct UnderWay(Arc<Combiner>);

impl UnderWay {
    fn new(combiner: &Arc<Combiner>) -> Self {
        combiner.under_way.fetch_add(1, Ordering::Relaxed);
        Self(combiner.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
