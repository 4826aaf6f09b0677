//! Tasks that are polled inside a body and do not have its locks.

use std::future::Future;
use std::sync::Arc;

use dlock_runtime::{Clock, ErrorKind, Held, current, current_locks};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, block_in_place, spawn_local, yield_now};

use crate::support::{World, full, test};

fn world() -> Arc<World> {
    Arc::new(World::on(&Clock::system()))
}

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Does not have the lock `k`, and is refused like any other caller.
async fn is_a_stranger(world: Arc<World>) {
    assert!(current().is_none(), "a stranger has the lock of another call");
    assert!(!current_locks(|_| true));
    for reentrant in [true, false] {
        let told = world.lock("k").reentrant(reentrant).try_acquire().await.map(drop).unwrap_err();
        assert_eq!(told.kind(), &ErrorKind::Busy, "reentrant: {reentrant}");
    }
    world.lock("own").run(|held| async move { assert_eq!(current().unwrap().key(), held.key()) }).await.unwrap();
    assert!(current().is_none());
}

/// Has the lock `k`, and joins its hold.
async fn is_the_same_caller(world: &World) {
    assert_eq!(current().unwrap().key(), &full("k"));
    world.lock("k").reentrant(true).try_acquire().await.map(drop).unwrap();
    let told = world.lock("k").try_acquire().await.map(drop).unwrap_err();
    assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
}

/// Tasks of a current-thread runtime beside its main future, both polled inside a sync body.
fn block_on_inside(world: &Arc<World>) {
    let runtime = single();
    let earlier = runtime.spawn(is_a_stranger(world.clone()));
    runtime.block_on(async {
        is_the_same_caller(world).await;
        earlier.await.unwrap();
        tokio::spawn(is_a_stranger(world.clone())).await.unwrap();
        is_the_same_caller(world).await;
    });
}

#[test]
fn a_task_of_a_runtime_that_a_sync_body_drives_does_not_have_its_locks() {
    let world = world();
    world.lock("k").run_blocking(|_| block_on_inside(&world)).unwrap();
}

#[test]
fn a_runtime_in_a_runtime_changes_nothing() {
    let world = world();
    let body = world.clone();
    let several = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let in_place = async move {
        let inside = body.clone();
        let run = body.lock("k").run(|_| async move { block_in_place(|| block_on_inside(&inside)) });
        run.await.unwrap();
    };
    several.block_on(async { tokio::spawn(in_place).await.unwrap() });
    let body = world.clone();
    let sync = move || body.lock("k").run_blocking(|_| block_on_inside(&body)).unwrap();
    several.block_on(async { tokio::task::spawn_blocking(sync).await.unwrap() });
}

#[test]
fn a_task_of_a_local_set_that_a_body_drives_does_not_have_its_locks() {
    async fn inside(world: Arc<World>) {
        {
            let set = LocalSet::new();
            set.spawn_local(is_a_stranger(world.clone())).await_in(&set).await;
            let main = async {
                is_the_same_caller(&world).await;
                spawn_local(is_a_stranger(world.clone())).await.unwrap();
                is_the_same_caller(&world).await;
            };
            set.run_until(main).await;
        }
    }
    test(async {
        let world = world();
        // In the main future of a runtime, and in a task.
        world.lock("k").run(|_| inside(world.clone())).await.unwrap();
        let task = world.clone();
        let run = async move { task.lock("k").run(|_| inside(task.clone())).await.unwrap() };
        LocalSet::new().run_until(async { spawn_local(run).await.unwrap() }).await;
    });
}

trait AwaitIn {
    fn await_in(self, set: &LocalSet) -> impl Future<Output = ()>;
}

impl AwaitIn for tokio::task::JoinHandle<()> {
    async fn await_in(self, set: &LocalSet) {
        set.run_until(async { self.await.unwrap() }).await;
    }
}

#[test]
fn futures_within_one_task_are_the_same_caller() {
    let body = |world: Arc<World>| async move {
        let mut members: FuturesUnordered<_> = (0..3).map(|_| is_the_same_caller(&world)).collect();
        while members.next().await.is_some() {}
        tokio::join!(is_the_same_caller(&world), async {
            yield_now().await;
            is_the_same_caller(&world).await;
        });
        tokio::select! {
            () = is_the_same_caller(&world) => {}
            () = std::future::pending() => {}
        }
    };
    test(async {
        let world = world();
        world.lock("k").run(|_: Held| body(world.clone())).await.unwrap();
        let task = world.clone();
        tokio::spawn(async move { task.lock("k").run(|_| body(task.clone())).await.unwrap() }).await.unwrap();
    });
}
