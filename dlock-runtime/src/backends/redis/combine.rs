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
use crate::background::spawn_here;
use crate::error::{Error, Result};

/// So many requests leave together at most. More would wait for each other's answers, and the server for us.
const MOST: usize = 16;

/// The way to the server that the tasks of one runtime share.
pub(super) struct Combiner {
    client: MultiplexedConnection,
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
    /// From the first request on, so that nothing overtakes what waits here: an abandon comes after its acquire.
    under_way: Option<UnderWay>,
}

/// How many answers whose request waits for.
struct Asked {
    answers: usize,
    to: oneshot::Sender<Result<Vec<Value>>>,
}

impl Combiner {
    pub(super) fn new(client: MultiplexedConnection) -> Self {
        Self { client, under_way: AtomicUsize::new(0), next: Mutex::default() }
    }

    /// Sends one command.
    pub(super) async fn one(self: &Arc<Self>, command: Cmd) -> Result<Value> {
        if self.is_busy() {
            let mut answers = self.together([command]).await?;
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
            return self.together(commands).await;
        }
        let _under_way = UnderWay::new(self);
        let mut pipeline = Pipeline::with_capacity(2);
        add(&mut pipeline, commands);
        let mut client = self.client.clone();
        let answers = Box::pin(client.send_packed_commands(&pipeline, 0, pipeline.len())).await;
        answers.map_err(|error| fault::client(&error))
    }

    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    async fn together(self: &Arc<Self>, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>> {
        let (to, answers) = oneshot::channel();
        let began = self.join(commands, to);
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
        to: oneshot::Sender<Result<Vec<Value>>>,
    ) -> Option<Began> {
        let mut next = self.lock();
        let before = next.pipeline.len();
        add(&mut next.pipeline, commands);
        let answers = next.pipeline.len() - before;
        next.asked.push(Asked { answers, to });
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
            spawn_here(sending);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    async fn send(self, mut client: MultiplexedConnection) {
        let Self { pipeline, asked, under_way, .. } = self;
        let answers = client.send_packed_commands(&pipeline, 0, pipeline.len()).await;
        drop(under_way);
        let mut answers = answers.map(Vec::into_iter);
        for Asked { answers: own, to } in asked {
            let own = match &mut answers {
                Ok(answers) => Ok(answers.by_ref().take(own).collect()),
                Err(error) => Err(fault::client(error)),
            };
            // Nobody waits any more for a request that was given up.
            let _ = to.send(own);
        }
    }
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
        if next.number == self.number && tokio::runtime::Handle::try_current().is_ok() {
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
