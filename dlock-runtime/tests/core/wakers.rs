//! Wakers of the user's that our thread calls. They may block or panic, so they run elsewhere.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use dlock_contract::RunsOn;
use dlock_memory::Memory;
use dlock_runtime::{Clock, Held};
use futures::FutureExt;
use tokio::task::LocalSet;

use crate::support::{Faulty, LONG, MS, Offers, Op, SECOND, Step, World, calm, full, test, until};

/// A waker of an executor that dlock knows nothing of.
struct Foreign {
    /// Panics, or blocks until the other end is dropped.
    blocks: Option<Arc<Mutex<Receiver<()>>>>,
    woken_on: Sender<String>,
}

pub(crate) fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        let _ = self.woken_on.send(thread_name());
        match &self.blocks {
            None => panic!("a waker that panics"),
            Some(go) => drop(go.lock().unwrap().recv()),
        }
    }
}

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A caller that waits, and what lets our thread wake it.
type Way = (&'static str, Waiting, Waiting);

/// Every way in which a caller waits for our thread.
async fn ways(world: &World) -> Vec<Way> {
    let on_own_thread = |offers: &mut Offers| offers.runs_on = RunsOn::OwnThread;
    let own = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, on_own_thread);
    world.registry.install("own", own.clone()).unwrap();
    let mut ways: Vec<Way> = Vec::new();
    for key in ["a guard", "a body", "a list", "an election"] {
        let guard = world.lock(key).acquire().await.unwrap();
        let lock = world.lock(key).wait(LONG);
        let waits: Waiting = match key {
            "a guard" => Box::pin(async move { drop(lock.acquire().await) }),
            "a body" => Box::pin(async move { drop(lock.run(|_| async {}).await) }),
            "a list" => {
                let locks = world.registry.lock_all([key, "its second"]).wait(LONG);
                Box::pin(async move { drop(locks.acquire().await) })
            }
            _ => {
                let election = world.registry.elect(key);
                Box::pin(async move { drop(election.campaign().await) })
            }
        };
        // Our thread releases it, and passes the turn on.
        ways.push((key, waits, Box::pin(async move { drop(guard) })));
    }
    let (memory, clock) = (world.memory.clone(), world.clock.clone());
    let lose = async move {
        memory.forget(&full("a body's loss"));
        clock.advance(11 * SECOND);
    };
    let body = world.lock("a body's loss").run(|_| pending::<()>());
    ways.push(("a body's loss", Box::pin(async move { drop(body.await) }), Box::pin(lose)));
    let broken = world.lock("a loss").acquire().await.unwrap();
    let handle = Held::clone(&broken);
    let (memory, confirm) = (world.memory.clone(), world.clock.clone());
    let lose = async move {
        memory.forget(&full("a loss"));
        confirm.advance(11 * SECOND);
        std::mem::forget(broken);
    };
    ways.push(("a loss", Box::pin(async move { drop(handle.lost().await) }), Box::pin(lose)));
    own.next(Op::Acquire, [Step::Late(SECOND)]);
    let (request, later) = (world.lock("a request").backend("own"), world.clock.clone());
    let answer = async move {
        loop {
            later.advance(MS);
            calm().await;
        }
    };
    ways.push(("a request", Box::pin(async move { drop(request.acquire().await) }), Box::pin(answer)));
    let clock = Clock::system();
    let sleep = async move { clock.sleep_until(clock.now().after(MS)).await };
    ways.push(("a sleep", Box::pin(sleep), Box::pin(async {})));
    ways
}

async fn wakers_run_on_other_threads(blocks: Option<Arc<Mutex<Receiver<()>>>>) {
    let world = World::new();
    let kept = world.lock("kept").acquire().await.unwrap();
    for (name, mut waits, wake) in ways(&world).await {
        let (woken_on, told) = channel();
        let waker = Waker::from(Arc::new(Foreign { blocks: blocks.clone(), woken_on }));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "{name}");
        let thread = tokio::select! {
            thread = heard(&told, name) => thread,
            () = wake.then(|()| pending()) => unreachable!("for ever"),
        };
        assert_ne!(thread, "dlock", "{name}");
        drop(waits);
        // Our thread goes on.
        calm().await;
    }
    world.pass(120 * SECOND).await;
    kept.check().unwrap();
}

pub(crate) async fn heard(told: &Receiver<String>, what: &str) -> String {
    let mut heard = None;
    until(what, || {
        heard = heard.take().or_else(|| told.try_recv().ok());
        heard.is_some()
    })
    .await;
    heard.unwrap()
}

#[test]
fn a_waker_that_panics_runs_on_another_thread() {
    test(wakers_run_on_other_threads(None));
}

#[test]
fn a_waker_that_blocks_runs_on_another_thread() {
    let (go, blocked) = channel();
    test(wakers_run_on_other_threads(Some(Arc::new(Mutex::new(blocked)))));
    drop(go);
}

/// Tokio's own waker of the task wakes that of the executor. Where the executor has entered a runtime, that cannot be seen.
#[test]
fn a_task_of_a_local_set_that_a_foreign_executor_polls_is_woken_on_another_thread() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let (lock, (woken_on, told), (_, blocks_no_more)) = (world.lock("k").wait(LONG), channel(), channel());
        let (has_polled, polled) = channel();
        let executor = std::thread::spawn(move || {
            let mut tasks = LocalSet::new();
            tasks.spawn_local(async move { drop(lock.acquire().await) });
            let blocks = Some(Arc::new(Mutex::new(blocks_no_more)));
            let waker = Waker::from(Arc::new(Foreign { blocks, woken_on }));
            while Pin::new(&mut tasks).poll(&mut Context::from_waker(&waker)).is_pending() {
                let _ = has_polled.send(());
                std::thread::sleep(MS);
            }
        });
        until("the task waits", || polled.try_recv().is_ok()).await;
        drop(guard);
        until("the task has had the lock", || executor.is_finished()).await;
        executor.join().unwrap();
        let woken_on: Vec<_> = told.try_iter().collect();
        assert!(!woken_on.is_empty() && !woken_on.iter().any(|thread| thread == "dlock"), "{woken_on:?}");
    });
}
