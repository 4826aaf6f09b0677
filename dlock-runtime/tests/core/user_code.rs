//! Code of the user's that comes to our thread: layers of `tracing`, wakers, observers and hooks that block, panic, or are
//! dropped slowly. It runs elsewhere, and all other locks go on.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dlock_contract::{Backend, RunsOn};
use dlock_memory::Memory;
use dlock_runtime::{Clock, Event, Guard, Held, Label, Observer, Registry};
use dlock_store::background;
use futures::FutureExt;
use tracing::Level;

use self::layer::{Does, Layer, Line};
use crate::support::{Faulty, LONG, MS, Offers, Op, SECOND, Step, World, calm, full, test, until};

/// The layer of the whole program. Each test tells it what to do with the lines about one store.
pub(crate) mod layer {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    pub(crate) enum Does {
        Nothing,
        Panic,
        /// Blocks until the other end is dropped.
        Block(std::sync::Arc<Mutex<std::sync::mpsc::Receiver<()>>>),
    }

    /// The text, the thread on which it came, and the level.
    pub(crate) type Line = (String, String, Level);
    pub(crate) type Lines = Vec<Line>;

    static STORES: LazyLock<Mutex<HashMap<&'static str, (Does, Lines)>>> = LazyLock::new(Mutex::default);

    pub(crate) struct Layer;

    impl Layer {
        pub(crate) fn meets(store: &'static str, does: Does) {
            static SET: LazyLock<()> = LazyLock::new(|| tracing::subscriber::set_global_default(Layer).unwrap());
            LazyLock::force(&SET);
            STORES.lock().unwrap().insert(store, (does, Lines::new()));
        }

        /// The lines about a store.
        pub(crate) fn lines(store: &str) -> Lines {
            STORES.lock().unwrap()[store].1.clone()
        }
    }

    #[derive(Default)]
    struct Fields {
        backend: String,
        message: String,
        /// The kind of the line, and the number of lines that were left out.
        of: String,
    }

    impl Visit for Fields {
        fn record_str(&mut self, field: &Field, value: &str) {
            if ["backend", "library"].contains(&field.name()) {
                value.clone_into(&mut self.backend);
            }
            self.record_debug(field, &value);
        }
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            match field.name() {
                "message" => self.message = format!("{value:?}"),
                name @ ("kind" | "left_out") => self.of += &format!(" {name}={value:?}"),
                _ => {}
            }
        }
    }

    impl Subscriber for Layer {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            ["dlock", "a library", "zookeeper_client"].iter().any(|known| metadata.target().starts_with(known))
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let blocks = {
                let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
                let Some((does, lines)) = stores.get_mut(&*fields.backend) else { return };
                let thread = std::thread::current().name().unwrap_or_default().to_owned();
                lines.push((fields.message + &fields.of, thread, *event.metadata().level()));
                match does {
                    Does::Nothing => return,
                    Does::Panic => None,
                    Does::Block(go) => Some(go.clone()),
                }
            };
            match blocks {
                None => panic!("a layer that panics"),
                // For so long only, because a test that fails must end.
                Some(go) => drop(go.lock().unwrap().recv_timeout(std::time::Duration::from_secs(10))),
            }
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
}

/// The lines that our thread has to write in these tests.
const OURS: [&str; 2] = [
    "the store keeps failing: new calls fail at once, and one a second asks whether it answers again",
    "the store answers again",
];

/// A world with a second store, whose renewals fail until our thread has a line to write about it.
async fn failed(store: &'static str, does: Does) -> (World, Faulty, Guard, Guard) {
    let world = World::new();
    let other = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
    world.registry.install(store, other.clone()).unwrap();
    let kept = world.lock("kept").acquire().await.unwrap();
    let failing = world.lock("failing").backend(store).ttl(60 * SECOND).acquire().await.unwrap();
    Layer::meets(store, does);
    other.always(Op::Renew, Step::Fail);
    // A retry comes after a quarter of the time that is left, so there are many by now.
    world.pass(55 * SECOND).await;
    other.always(Op::Renew, Step::Pass);
    (world, other, kept, failing)
}

/// All lines come, and none of them on our thread.
async fn lines_come(store: &str) {
    let has = |text: &str| Layer::lines(store).iter().any(|(line, ..)| line == text);
    until("our lines", || OURS.iter().all(|text| has(text))).await;
    let lines = Layer::lines(store);
    assert!(lines.iter().all(|(_, thread, _)| thread != "dlock"), "{lines:?}");
}

#[test]
fn a_layer_that_blocks_delays_no_renewal() {
    test(async {
        let (go, blocked) = channel();
        let store = "a layer that blocks";
        let (world, _, kept, failing) = failed(store, Does::Block(Arc::new(Mutex::new(blocked)))).await;
        world.pass(240 * SECOND).await;
        kept.check().unwrap();
        failing.check().unwrap();
        drop(go);
        lines_come(store).await;
    });
}

#[test]
fn a_layer_that_panics_costs_one_line_and_no_renewal() {
    test(async {
        let store = "a layer that panics";
        let (world, _, kept, failing) = failed(store, Does::Panic).await;
        world.pass(240 * SECOND).await;
        kept.check().unwrap();
        failing.check().unwrap();
        lines_come(store).await;
        // The thread of the observers goes on, and so do callers.
        drop(world.lock("again").backend(store).acquire().await.unwrap());
        failing.release().await.unwrap();
        until("the observers hear of it", || world.events.count("Released") == 2).await;
    });
}

/// As the task of a client library does that drives a connection there.
#[test]
fn a_line_that_a_library_writes_on_our_thread_delays_no_renewal() {
    test(async {
        let (go, blocked) = channel();
        let (store, zookeeper) = ("a library whose lines block", "zookeeper_client::session");
        Layer::meets(zookeeper, Does::Nothing);
        let (world, _, kept, _) = failed(store, Does::Block(Arc::new(Mutex::new(blocked)))).await;
        background().unwrap().spawn(async move {
            tracing::debug!(target: "a library whose lines block", backend = store, "not of interest");
            for _ in 0..2 {
                tracing::warn!(target: "a library whose lines block", backend = store, failures = 2, "a warning");
                tracing::error!(target: "a library whose lines block", backend = store, "an error");
            }
            tracing::error!(target: "zookeeper_client::session", "no connection");
        });
        world.pass(240 * SECOND).await;
        kept.check().unwrap();
        drop(go);
        lines_come(store).await;
        let levels = |store: &str, text: &str| {
            let is_meant = |(line, thread, _): &&Line| line.starts_with(text) && thread == "dlock-log";
            Layer::lines(store).iter().filter(is_meant).map(|(.., level)| *level).collect::<Vec<_>>()
        };
        until("the library's lines", || levels(zookeeper, "no connection").len() == 1).await;
        // In an outage a library may write hundreds of lines at one place.
        assert_eq!(levels(store, "a warning "), [Level::WARN, Level::DEBUG]);
        assert_eq!(levels(store, "an error"), [Level::ERROR, Level::DEBUG]);
        assert_eq!(levels(zookeeper, "no connection"), [Level::DEBUG]);
        let all = Layer::lines(store);
        assert!(all.iter().any(|(line, ..)| line.contains("failures=2")), "{all:?}");
        assert!(!all.iter().any(|(line, ..)| line.contains("not of interest")), "{all:?}");
    });
}

/// A waker of an executor that dlock knows nothing of.
struct Foreign {
    /// Panics, or blocks until the other end is dropped.
    blocks: Option<Arc<Mutex<Receiver<()>>>>,
    woken_on: Sender<String>,
}

fn thread_name() -> String {
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

async fn heard(told: &Receiver<String>, what: &str) -> String {
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

/// Tells where it is dropped, and blocks there until the other end is dropped.
struct DropsSlowly(Sender<String>, Mutex<Receiver<()>>);

impl Drop for DropsSlowly {
    fn drop(&mut self) {
        let _ = self.0.send(thread_name());
        let _ = self.1.lock().unwrap().recv();
    }
}

impl Observer for DropsSlowly {
    fn on_event(&self, _: &Label, _: &Event) {}
}

#[test]
fn an_observer_that_is_dropped_slowly_with_its_registry_delays_no_renewal() {
    test(async {
        let world = World::new();
        let kept = world.lock("kept").acquire().await.unwrap();
        let ((say, told), (go, blocked)) = (channel(), channel());
        let registry = Registry::with_clock(&world.clock);
        registry.install("m", world.store.clone()).unwrap();
        registry.observe(DropsSlowly(say, Mutex::new(blocked)));
        let guard = registry.lock("k").acquire().await.unwrap();
        drop(registry);
        // Our thread releases it, and has the last reference to the registry's observers, unless it is quicker than this drop. Then
        // the thread that drops is the last, and this test must not wait for itself.
        std::thread::spawn(move || drop(guard));
        assert_ne!(heard(&told, "the observer is dropped").await, "dlock");
        world.pass(120 * SECOND).await;
        kept.check().unwrap();
        drop(go);
    });
}

#[test]
fn a_trace_hook_that_is_dropped_slowly_with_its_registry_delays_no_renewal() {
    test(async {
        let world = World::new();
        let kept = world.lock("kept").acquire().await.unwrap();
        let ((say, told), (go, blocked)) = (channel(), channel());
        let hook = DropsSlowly(say, Mutex::new(blocked));
        let registry = Registry::with_clock(&world.clock);
        registry.trace_with(move || {
            let _ = &hook;
            None
        });
        let (open, opens) = tokio::sync::oneshot::channel::<()>();
        let (memory, opens) = (world.memory.clone(), Mutex::new(Some(opens)));
        let opening = move |_| {
            let (memory, opens) = (memory.clone(), opens.lock().unwrap().take());
            async move {
                opens.unwrap().await.unwrap();
                Ok(Arc::new(memory) as Arc<dyn Backend>)
            }
        };
        registry.install_lazy("lazy", opening).unwrap();
        let mut acquiring = Box::pin(registry.lock("k").acquire());
        assert!(matches!(futures::poll!(acquiring.as_mut()), Poll::Pending));
        calm().await;
        // From here on only the opening, on our thread, has the registry.
        drop((acquiring, registry));
        open.send(()).unwrap();
        assert_ne!(heard(&told, "the hook is dropped").await, "dlock");
        world.pass(120 * SECOND).await;
        kept.check().unwrap();
        drop(go);
    });
}
