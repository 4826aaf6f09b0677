//! Code of the user's that comes to our thread: layers of `tracing`, observers and hooks that block, panic, or are dropped
//! slowly. It runs elsewhere, and all other locks go on. The tests of wakers are in `wakers`.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use dlock_contract::Backend;
use dlock_memory::Memory;
use dlock_runtime::{Event, Guard, Label, Observer, Registry};
use dlock_store::background;
use tracing::Level;

use self::layer::{Does, Layer, Line};
use crate::support::{Faulty, Op, SECOND, Step, World, calm, test, until};
use crate::wakers::{heard, thread_name};

/// The layer of the whole program. Each test tells it what to do with the lines about one store.
pub(crate) mod layer {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::Interest;
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

    /// The target of each place that was shown to the layer, and the thread on which that happened.
    static REGISTERED: Mutex<Vec<(&str, String)>> = Mutex::new(Vec::new());

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

        /// The threads on which places with this target were shown to the layer.
        pub(crate) fn registered_on(target: &str) -> Vec<String> {
            let registered = REGISTERED.lock().unwrap();
            registered.iter().filter(|(of, _)| *of == target).map(|(_, thread)| thread.clone()).collect()
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
                name @ ("kind" | "left_out" | "finding") => self.of += &format!(" {name}={value:?}"),
                _ => {}
            }
        }
    }

    impl Subscriber for Layer {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            ["dlock", "a library", "zookeeper_client"].iter().any(|known| metadata.target().starts_with(known))
        }
        fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            REGISTERED.lock().unwrap().push((metadata.target(), thread));
            if self.enabled(metadata) { Interest::always() } else { Interest::never() }
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

/// Waits until our thread has a subscriber of its own.
async fn our_thread_is_apart() {
    let apart = || background().unwrap().run(async { tracing::dispatcher::get_default(|now| !now.is::<Layer>()) });
    while !apart().await.unwrap() {
        calm().await;
    }
}

/// A layer may block where it is shown a place of the program, too. Those of libraries are shown where they write first.
#[test]
fn no_place_of_ours_is_shown_to_a_layer_on_our_thread() {
    test(async {
        let store = "a layer that is shown our places";
        let (world, _, kept, failing) = failed(store, Does::Nothing).await;
        world.pass(240 * SECOND).await;
        lines_come(store).await;
        our_thread_is_apart().await;
        let threads = Layer::registered_on("dlock");
        assert!(!threads.is_empty() && !threads.iter().any(|thread| thread == "dlock"), "{threads:?}");
        kept.check().unwrap();
        failing.check().unwrap();
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
        our_thread_is_apart().await;
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
