//! A batch: the requests that leave together, and which of the answers belongs to which of them.
//!
//! Exists because the server answers a batch with one list, and each caller must get its own part of it. One command draws
//! the tokens of the whole batch; otherwise each acquisition would send one more command.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::redis::{Cmd, Pipeline, Value};
use dlock_contract::Result;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::combine::releases::Releases;
use crate::layout::token::FENCE;
use crate::reply::read::each;
use crate::socket::ended::Ended;
use crate::socket::server::Wire;
use crate::sync::{AtomicUsize, planted};

/// Requests that will leave together.
#[derive(Default)]
pub(crate) struct Batch {
    /// The batch's number: by it, the caller that began the batch sees whether it has left already.
    pub(crate) number: u64,
    /// Whether dlock's own thread watches the batch.
    pub(crate) watched: bool,
    pub(crate) pipeline: Pipeline,
    pub(crate) requests: Vec<BatchedRequest>,
    pub(crate) releases: Releases,
    /// How many tokens are drawn for them, by one command at the end.
    pub(crate) draws: i64,
    /// From the first request on, so that no later request overtakes those that wait here: an abandon comes after its
    /// acquire.
    pub(crate) under_way: Option<UnderWay>,
}

/// A request in the batch: the answers that it wants, and the caller that waits for them.
pub(crate) struct BatchedRequest {
    pub(crate) wants: Wants,
    pub(crate) reply: oneshot::Sender<Result<Answers>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Wants {
    /// This many answers.
    Answers(usize),
    /// One, and one of the batch's tokens, counted from zero.
    Draw(i64),
    /// The outcome of its release.
    Release,
}

/// The answers to one request, seldom more than two.
pub(crate) type Answers = SmallVec<[Value; 2]>;

/// A request on its way, or a batch. Drop takes it off the count.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batch {
    /// The batch that gathers next, with room for as many as this one: growing step by step costs more than sending.
    pub(crate) fn after(last: &Self) -> Self {
        Self {
            number: last.number + 1,
            watched: last.watched,
            pipeline: Pipeline::with_capacity(last.pipeline.len() + 2),
            requests: Vec::with_capacity(last.requests.len()),
            releases: Releases::with_capacity(last.releases.count),
            ..Self::default()
        }
    }

    pub(crate) fn put(&mut self, commands: impl IntoIterator<Item = Cmd>) -> Wants {
        let before = self.pipeline.len();
        add(&mut self.pipeline, commands);
        Wants::Answers(self.pipeline.len() - before)
    }

    pub(crate) async fn send(self, mut wire: Wire, ended: Arc<Ended>) {
        let Self { mut pipeline, requests, releases, draws, under_way, .. } = self;
        if draws > 0 {
            pipeline.add_command(draw(draws));
        }
        let releasing = releases.call();
        let releases = releasing.is_some();
        add(&mut pipeline, releasing);
        let answers = ended.or(wire.client.send_packed_commands(&pipeline, 0, pipeline.len())).await;
        drop(under_way);
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                for BatchedRequest { reply, .. } in requests {
                    let _ = reply.send(Err(wire.fault(&error)));
                }
                return;
            }
        };
        let mut released = if releases { each(answers.pop()) } else { Box::new(std::iter::empty()) };
        let drawn = if draws > 0 { answers.pop() } else { None };
        let mut answers = answers.into_iter();
        for BatchedRequest { wants, reply } in requests {
            let own = match wants {
                Wants::Answers(count) => answers.by_ref().take(count).collect(),
                // The highest of all that were drawn is the answer.
                Wants::Draw(number) => {
                    let token = match &drawn {
                        Some(Value::Int(first)) if planted("tokens of a batch are counted from its first") => {
                            Some(Value::Int(first + number))
                        }
                        Some(Value::Int(highest)) => Some(Value::Int(highest - draws + 1 + number)),
                        other => other.clone(),
                    };
                    answers.next().into_iter().chain(token).collect()
                }
                Wants::Release => released.next().into_iter().collect(),
            };
            // The caller may have given up its request.
            let _ = reply.send(Ok(own));
        }
    }
}

/// Draws this number of tokens. The answer is the highest one.
pub(crate) fn draw(tokens: i64) -> Cmd {
    let mut draw = Cmd::with_capacity(3, 48);
    draw.arg("INCRBY").arg(FENCE).arg(tokens);
    draw
}

pub(crate) fn add(pipeline: &mut Pipeline, commands: impl IntoIterator<Item = Cmd>) {
    for command in commands {
        pipeline.add_command(command);
    }
}
