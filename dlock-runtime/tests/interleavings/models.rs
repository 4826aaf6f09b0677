//! The models: what the threads do, and what must be so at the end.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Key, LockKey};
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};

use crate::events::shutdown::Job;
use crate::queue::{
    Abandon, Content, Handover, Joined, LocalHold, LocalQueue, ServedRuntime, Turn, TurnRequest, Waiting, keys,
};
use crate::sync::plant;

const TTL: Duration = Duration::from_secs(30);

/// How many orders each model is run in.
const ORDERS: usize = 3000;

/// Runs a model as it is, and with a fault that it must find.
pub(crate) fn holds_and_finds(fault: &'static str, model: fn()) {
    shuttle::check_random(model, ORDERS);
    plant(fault);
    // Always in the same orders: a fault that is seldom seen must not be missed by chance.
    let orders = || shuttle::check_random_with_seed(model, 0x5eed, ORDERS);
    let found = catch_unwind(AssertUnwindSafe(orders)).is_err();
    plant("");
    assert!(found, "the model does not see the fault: {fault}");
}

#[test]
fn callers_have_the_turn_one_after_another() {
    holds_and_finds("a place is taken after the look", || {
        let world = World::new();
        let callers: Vec<_> = (0..3).map(|_| world.caller()).collect();
        join_all(callers);
        world.ends_empty();
    });
}

#[test]
fn a_waiter_that_goes_away_in_any_moment_stops_nobody() {
    holds_and_finds("a waiter that goes away takes the turn with it", || {
        let world = World::new();
        let mut callers = vec![world.caller(), world.caller()];
        callers.push(world.spawn(|world| {
            if let Joined::Behind(mut waiting) = world.join() {
                drop(block_on(polled_once(&mut waiting)));
            }
        }));
        join_all(callers);
        world.ends_empty();
    });
}

#[test]
fn a_hold_that_is_passed_on_is_taken_or_given_back() {
    holds_and_finds("a hold goes away with its waiter", || {
        let world = World::new();
        let turn = block_on(world.turn());
        let callers = vec![
            world.spawn(|world| world.passed(turn)),
            world.caller(),
            world.spawn(|world| {
                if let Joined::Behind(mut waiting) = world.join()
                    && let Some(turn) = block_on(polled_once(&mut waiting))
                {
                    world.take(turn);
                }
            }),
        ];
        join_all(callers);
        world.ends_empty();
    });
}

#[test]
fn a_release_that_asks_for_a_waiter_and_the_waiter_that_goes_away_stop_nobody() {
    holds_and_finds("a release calls nobody", || {
        let world = World::new();
        let mut turn = block_on(world.turn());
        assert!(turn.begin_hold(LocalHold {
            sole_thread: None,
            serves: Some(ServedRuntime(None)),
            is_releasing: false
        }));
        let callers = vec![
            world.spawn(|world| world.released(turn)),
            world.caller(),
            world.spawn(|world| match world.join() {
                Joined::Behind(mut waiting) => {
                    if let Some(turn) = block_on(polled_once(&mut waiting)) {
                        world.take(turn);
                    }
                }
                Joined::Turn(turn) => world.take(turn),
                other => panic!("{other:?}"),
            }),
        ];
        join_all(callers);
        world.ends_empty();
    });
}

/// One lock of one process.
#[derive(Clone, Debug)]
struct World {
    queue: Arc<LocalQueue>,
    key: LockKey,
    /// How many callers have the turn.
    inside: Arc<AtomicUsize>,
    /// Holds and answers that were passed on, and those of them that were taken or given back.
    passed: Arc<AtomicUsize>,
    over: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let counter = || Arc::new(AtomicUsize::new(0));
        let key = LockKey::new("test", Key::text("k")).unwrap();
        Self { queue: Arc::default(), key, inside: counter(), passed: counter(), over: counter() }
    }

    fn spawn(&self, work: impl FnOnce(Self) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || work(world))
    }

    /// A caller that waits for its turn, however long that takes.
    fn caller(&self) -> JoinHandle<()> {
        self.spawn(|world| {
            let turn = block_on(world.turn());
            world.take(turn);
        })
    }

    fn claim(&self) -> Arc<Claim> {
        Arc::new(Claim::new(self.key.clone(), TTL, "site").unwrap())
    }

    /// All that a caller may offer: a hold may be passed on to it, and a release may ask for it.
    fn join(&self) -> Joined {
        let request = TurnRequest {
            claim: self.claim(),
            max_ahead: Some(10),
            sole_thread: None,
            cohort_ttl: Some(TTL),
            release_asks_until: Some(BootInstant::NEVER),
            won: None,
        };
        self.queue.join(&self.key, request, || BootInstant::from_nanos(0))
    }

    async fn turn(&self) -> Turn {
        match self.join() {
            Joined::Turn(turn) => turn,
            Joined::Behind(waiting) => waiting.await.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Has the turn for a while.
    fn take(&self, mut turn: Turn) {
        if turn.take_handover().is_some() {
            self.over.fetch_add(1, Ordering::SeqCst);
        }
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two have the turn");
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        drop(turn);
    }

    fn handover(&self) -> Handover {
        Handover::new(
            Content::Answer(Attempt::AlreadyRun),
            &self.claim(),
            Arc::new(Store(self.over.clone())),
            Job::default(),
        )
    }

    /// Passes a hold on with the turn, if anybody waits.
    fn passed(&self, turn: Turn) {
        self.passed.fetch_add(1, Ordering::SeqCst);
        if turn.pass(self.handover()).is_some() {
            self.passed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Releases a hold. The release asks for the first waiter, and gives it the answer.
    fn released(&self, mut turn: Turn) {
        if let Some(next) = turn.begin_release() {
            self.passed.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            if let Some((turn, handover)) = next.turn.pass_to(next.ticket, self.handover()) {
                handover.give_back(turn.left());
            }
        }
        drop(turn);
    }

    /// Nothing is left when all callers have gone.
    fn ends_empty(&self) {
        assert_eq!(keys(&self.queue), 0, "the queue of the key is left");
        assert_eq!(self.over.load(Ordering::SeqCst), self.passed.load(Ordering::SeqCst), "a hold was lost on its way");
    }
}

/// The store to which a hold is given back.
#[derive(Debug)]
struct Store(Arc<AtomicUsize>);

impl Abandon for Store {
    fn abandon_later(self: Arc<Self>, _: Arc<Claim>, turn: Box<dyn Send>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        drop(turn);
    }
}

/// The turn, if the waiter has it now.
async fn polled_once(waiting: &mut Waiting) -> Option<Turn> {
    poll_fn(|cx| match Pin::new(&mut *waiting).poll(cx) {
        Poll::Ready(turn) => Poll::Ready(Some(turn.unwrap())),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(crate) fn join_all(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
