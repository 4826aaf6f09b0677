//! The models: what the callers do, and what must be so at the end.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{Claim, Key, LockKey, Result};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::Ordering;
use shuttle::thread::{self, JoinHandle};

use crate::combine::batch::Answers;
use crate::combine::combiner::{Ahead, Combiner};
use crate::layout::name::LockName;
use crate::layout::value::LockValue;
use crate::socket::ended::Ended;
use crate::socket::server::{Asked, Client, Server, Wire};
use crate::sync::{AtomicUsize, CallerRuntime, Mutex, begin, join_tasks, plant};

/// How many orders each model is run in.
const ORDERS: usize = 1000;

thread_local! {
    /// Whether dlock's own thread runs in the models that find their fault without it.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a model as it is, with and without dlock's own thread, and then with a fault that it must find.
fn holds_and_finds(fault: &'static str, model: fn()) {
    for is_watched in [true, false] {
        IS_WATCHED.set(is_watched);
        shuttle::check_random(model, ORDERS / 2);
    }
    plant(fault);
    // Always in the same orders: a fault that is seldom seen must not be missed by chance.
    let orders = || shuttle::check_random_with_seed(model, 0x5eed, ORDERS);
    let found = catch_unwind(AssertUnwindSafe(orders)).is_err();
    plant("");
    assert!(found, "the model does not see the fault: {fault}");
}

/// A batch leaves when the caller that began it goes away. No other thread looks after it here.
#[test]
fn a_caller_that_goes_away_keeps_the_answers_from_nobody() {
    holds_and_finds("a caller that goes away leaves its batch", || {
        let world = World::unless_watched();
        let _busy = world.ping();
        let goes = world.spawn(|world| world.given_up(&world.claim("b")));
        join_all(vec![goes, world.caller("a")]);
        join_tasks();
    });
}

/// If a release came before the request for its lock, nobody would release the lock.
#[test]
fn an_abandon_never_overtakes_its_acquire() {
    holds_and_finds("a batch that waits is not under way", || {
        let world = World::unless_watched();
        let busy = world.ping();
        let is_quiet = world.spawn(|_| {
            pause();
            drop(busy);
        });
        let goes = world.spawn(|world| {
            let claim = world.claim("b");
            world.given_up(&claim);
            block_on(world.combiner.release(&claim)).unwrap();
        });
        join_all(vec![is_quiet, goes, world.caller("a")]);
        join_tasks();
        world.ends_empty();
    });
}

/// The release is in the second batch, which must not overtake the first one.
#[test]
fn batches_leave_in_their_order() {
    holds_and_finds("a batch is let go before it leaves", || {
        let world = World::unless_watched();
        let _busy = world.ping();
        let claim = world.claim("b");
        let (begins, asks) = (world.ping(), world.asks(&claim));
        let first = world.spawn(|_| drop(begins));
        let second = world.spawn(move |world| {
            drop(asks);
            drop(world.combiner.release(&claim));
        });
        join_all(vec![first, second]);
        join_tasks();
        world.ends_empty();
    });
}

#[test]
fn each_caller_gets_its_own_answer() {
    holds_and_finds("tokens of a batch are counted from its first", || {
        let world = World::unless_watched();
        let _busy = world.ping();
        let other = world.spawn(|world| {
            let released = block_on(world.combiner.release(&world.claim("a"))).unwrap();
            assert_eq!(released, Value::Int(0), "a foreign lock is released");
        });
        join_all(vec![world.caller("a"), world.caller("a"), other]);
        join_tasks();
    });
}

/// The caller that began a batch keeps its request, and does not poll it.
#[test]
fn a_batch_whose_caller_is_not_polled_leaves() {
    holds_and_finds("the watch ends and nobody knows", || {
        let world = World::new();
        let _busy = world.ping();
        let mut unpolled = Vec::new();
        for _ in 0..2 {
            unpolled.push(world.ping());
            block_on(world.ping()).unwrap();
            // In some orders the watch ends in this time.
            (0..thread_rng().gen_range(0..60)).for_each(|_| thread::yield_now());
        }
        drop(unpolled);
        join_tasks();
    });
}

#[test]
fn the_end_of_the_connection_reaches_each_caller() {
    holds_and_finds("the end is looked at before the listening", || {
        let world = World::unless_watched();
        let told = Arc::new(AtomicUsize::new(0));
        let heard = told.clone();
        let then = Box::new(move |_| {
            heard.fetch_add(1, Ordering::SeqCst);
        });
        let ahead = Ahead { command: ping(), then };
        let asks = world.spawn(|world| drop(block_on(world.ping())));
        let behind = world.spawn(|world| drop(block_on(world.combiner.one(ping(), Some(ahead)))));
        let ends = world.spawn(|world| {
            world.server.lock().unwrap().has_ended = true;
            world.ended.tell();
        });
        join_all(vec![asks, behind, ends]);
        assert!(block_on(world.ping()).is_err(), "a request has an answer after the end");
        join_tasks();
        assert_eq!(told.load(Ordering::SeqCst), 1, "the command ahead has one answer");
    });
}

/// One connection, and its callers.
#[derive(Clone)]
struct World {
    combiner: Arc<Combiner>,
    server: Arc<Mutex<Server>>,
    ended: Arc<Ended>,
    /// All tokens, and the last one with which each lock was won.
    drawn: Arc<Mutex<BTreeSet<i64>>>,
    won: Arc<Mutex<BTreeMap<&'static str, i64>>>,
}

impl World {
    fn new() -> Self {
        begin(true);
        Self::build()
    }

    /// Where a fault is planted, without dlock's own thread, which would mend it.
    fn unless_watched() -> Self {
        begin(IS_WATCHED.get());
        Self::build()
    }

    fn build() -> Self {
        let (server, ended) = (Arc::<Mutex<Server>>::default(), Arc::<Ended>::default());
        let wire = Wire { client: Client(server.clone()) };
        let combiner = Arc::new(Combiner::new(wire, ended.clone(), CallerRuntime));
        Self { combiner, server, ended, drawn: Arc::default(), won: Arc::default() }
    }

    fn spawn(&self, work: impl FnOnce(Self) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || work(world))
    }

    fn claim(&self, key: &'static str) -> Claim {
        let key = LockKey::new("test", Key::text(key)).unwrap();
        Claim::new(key, Duration::from_secs(1), "site").unwrap()
    }

    fn ping(&self) -> impl Future<Output = Result<Value>> + Send + use<> {
        self.combiner.one(ping(), None)
    }

    /// Asks for the lock and for a token.
    fn asks(&self, claim: &Claim) -> impl Future<Output = Result<Answers>> + Send + use<> {
        let mut set = Cmd::new();
        set.arg("SET").arg(LockName(&claim.key)).arg(LockValue(claim)).arg("NX");
        self.combiner.drawing(set, None)
    }

    /// Takes the lock and releases it. The caller asks, and is polled some steps later.
    fn caller(&self, key: &'static str) -> JoinHandle<()> {
        self.spawn(move |world| {
            let claim = world.claim(key);
            let asks = world.asks(&claim);
            pause();
            let answers = block_on(asks).unwrap();
            let [outcome, Value::Int(token)] = &answers[..] else { panic!("{answers:?}") };
            assert!(*token <= world.server.lock().unwrap().fence, "no such token was drawn");
            assert!(world.drawn.lock().unwrap().insert(*token), "two callers have one token");
            let has_won = *outcome == Value::Okay;
            if has_won {
                let before = world.won.lock().unwrap().insert(key, *token);
                assert!(before.is_none_or(|before| before < *token), "the tokens of a lock do not rise");
            }
            let released = block_on(world.combiner.release(&claim)).unwrap();
            assert_eq!(released, Value::Int(has_won.into()), "the answer belongs to another release");
        })
    }

    /// Asks for a lock, and goes away after some polls.
    fn given_up(&self, claim: &Claim) {
        let mut asks = pin!(self.asks(claim));
        for _ in 0..thread_rng().gen_range(0..3) {
            if block_on(polled_once(asks.as_mut())).is_some() {
                return;
            }
        }
    }

    /// No lock is left, and no release came before the request for its lock.
    fn ends_empty(&self) {
        let server = self.server.lock().unwrap();
        for (at, (asked, owner)) in server.log.iter().enumerate() {
            let is_late = *asked == Asked::Lock && server.log[..at].contains(&(Asked::Release, owner.clone()));
            assert!(!is_late, "a release came before its lock");
        }
        assert!(server.locks.is_empty(), "a lock is left");
    }
}

/// Some steps of the others.
fn pause() {
    (0..thread_rng().gen_range(0..12)).for_each(|_| thread::yield_now());
}

fn ping() -> Cmd {
    ::redis::cmd("PING")
}

async fn polled_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
