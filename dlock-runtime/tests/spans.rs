//! The spans of waits and holds, as OpenTelemetry's SDK sees them, with a collector in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_contract::ErrorKind;
use dlock_memory::Memory;
use dlock_runtime::{Key, Registry, Wait};
use opentelemetry::trace::{SpanId, TraceContextExt, TracerProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::{Instrument, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The spans that have ended.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(batch);
        Ok(())
    }
}

impl Collector {
    /// The trace, the parent and the attributes of the spans with this name that began in this trace.
    fn spans(&self, name: &str, trace: &str) -> Vec<(SpanId, HashMap<String, String>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_trace = all.iter().filter(|span| span.name == name && span.span_context.trace_id().to_string() == trace);
        let attributes = |span: &SpanData| {
            span.attributes.iter().map(|attribute| (attribute.key.to_string(), attribute.value.to_string())).collect()
        };
        of_trace.map(|span| (span.parent_span_id, attributes(span))).collect()
    }
}

/// The trace of the present span.
fn trace_id() -> String {
    Span::current().context().span().span_context().trace_id().to_string()
}

fn ids(span: &Span) -> (String, SpanId) {
    let context = span.context();
    let of_span = context.span().span_context().clone();
    (of_span.trace_id().to_string(), of_span.span_id())
}

struct World {
    collector: Collector,
    registry: Registry,
    _provider: SdkTracerProvider,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl World {
    fn new() -> Self {
        let collector = Collector::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("dlock"));
        let subscriber = tracing_subscriber::registry().with(layer).set_default();
        let registry = Registry::new();
        registry.install("memory", Memory::new()).unwrap();
        registry.trace_with(|| Some(trace_id()));
        Self { collector, registry, _provider: provider, _subscriber: subscriber }
    }

    fn lock(&self) -> dlock_runtime::Lock {
        self.registry.lock(Key::text("stock:").value(&7)).name("deduct")
    }
}

#[tokio::test]
async fn a_wait_that_ran_out_names_the_trace_of_the_holder_and_each_span_is_a_child_of_its_caller() {
    let world = World::new();
    let (holds, waits) = (info_span!("holds"), info_span!("waits"));
    let ((holder, holder_span), (waiter, waiter_span)) = (ids(&holds), ids(&waits));
    assert_ne!(holder, waiter);
    let guard = world.lock().acquire().instrument(holds).await.unwrap();
    let wait = world.lock().wait(Wait::UpTo(Duration::from_millis(20))).acquire().instrument(waits);
    let error = wait.await.unwrap_err();
    assert_eq!((error.kind(), error.holder_trace()), (&ErrorKind::WaitTimeout, Some(&*holder)));
    guard.release().await.unwrap();

    let [(parent, attributes)] = &world.collector.spans("dlock.wait", &holder)[..] else { panic!("one wait") };
    assert_eq!((*parent, &*attributes["outcome"]), (holder_span, "acquired"));
    assert!(!attributes.contains_key("holder_trace"), "{attributes:?}");
    let [(parent, hold)] = &world.collector.spans("dlock.hold", &holder)[..] else { panic!("one hold") };
    assert_eq!((*parent, &*hold["outcome"]), (holder_span, "released"));
    assert_eq!((&*hold["name"], &*hold["key"], &*hold["backend"]), ("deduct", "dl1:default:stock:<7>", "memory"));
    assert_eq!(hold["hold"], attributes["hold"]);
    let [(parent, attributes)] = &world.collector.spans("dlock.wait", &waiter)[..] else { panic!("one wait") };
    assert_eq!((*parent, &*attributes["outcome"]), (waiter_span, "wait_timeout"));
    assert_eq!(attributes["holder_trace"], holder);
    assert!(world.collector.spans("dlock.hold", &waiter).is_empty());
}

#[test]
fn the_spans_of_a_caller_that_blocks_are_its_children_too() {
    let world = World::new();
    let span = info_span!("blocks");
    let (trace, parent) = ids(&span);
    let error = span.in_scope(|| {
        let guard = world.lock().sensitive().acquire_blocking().unwrap();
        let wait = Wait::UpTo(Duration::from_millis(20));
        let error = world.lock().wait(wait).acquire_blocking().unwrap_err();
        guard.release_blocking().unwrap();
        error
    });
    assert_eq!((error.kind(), error.holder_trace()), (&ErrorKind::WaitTimeout, Some(&*trace)));
    let [(first, taken), (second, refused)] = &world.collector.spans("dlock.wait", &trace)[..] else { panic!("two") };
    assert_eq!((*first, *second), (parent, parent));
    assert_eq!((&*taken["outcome"], &*refused["outcome"]), ("acquired", "wait_timeout"));
    assert!(taken["key"].starts_with("sha256:"), "{taken:?}");
    // Our own thread has ended the hold, so another one ends its span.
    let end = Instant::now() + Duration::from_secs(60);
    while world.collector.spans("dlock.hold", &trace).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let [(of_hold, _)] = &world.collector.spans("dlock.hold", &trace)[..] else { panic!("one hold") };
    assert_eq!(*of_hold, parent);
}

#[tokio::test]
async fn a_guard_that_is_dropped_and_a_lock_that_is_lost_end_their_spans() {
    let world = World::new();
    let span = info_span!("drops");
    let (trace, _) = ids(&span);
    let outcomes = || {
        let holds = world.collector.spans("dlock.hold", &trace);
        holds.into_iter().map(|(_, attributes)| attributes["outcome"].clone()).collect::<Vec<_>>()
    };
    let dropped = world.lock().acquire().instrument(span.clone()).await.unwrap();
    drop(dropped);
    assert_eq!(outcomes(), ["released"]);
    let lost = world.lock().acquire().instrument(span.clone()).await.unwrap();
    let id = world.lock().holders().await.unwrap().holders[0].id.unwrap();
    assert!(world.lock().break_hold(id).await.unwrap());
    lost.confirm().await.unwrap_err();
    drop(lost);
    assert_eq!(outcomes(), ["released", "lost"]);
}

/// A layer of the user's may block, and the renewals of all stores are on our own thread.
#[test]
fn no_layer_is_called_on_our_own_thread() {
    #[derive(Clone, Default)]
    struct Threads(Arc<Mutex<Vec<(&'static str, String)>>>);
    impl Threads {
        fn note(&self, call: &'static str) {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            self.0.lock().unwrap().push((call, thread));
        }
    }
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Threads {
        fn on_new_span(
            &self,
            _: &tracing::span::Attributes<'_>,
            _: &tracing::Id,
            _: tracing_subscriber::layer::Context<'_, S>,
        ) {
            self.note("new");
        }
        fn on_record(
            &self,
            _: &tracing::Id,
            _: &tracing::span::Record<'_>,
            _: tracing_subscriber::layer::Context<'_, S>,
        ) {
            self.note("record");
        }
        fn on_close(&self, _: tracing::Id, _: tracing_subscriber::layer::Context<'_, S>) {
            self.note("close");
        }
    }
    let threads = Threads::default();
    let _subscriber = tracing_subscriber::registry().with(threads.clone()).set_default();
    let registry = Registry::new();
    registry.install("memory", Memory::new()).unwrap();
    let lock = || registry.lock("k");
    lock().run_blocking(|_| ()).unwrap();
    lock().acquire_blocking().unwrap().release_blocking().unwrap();
    drop(lock().acquire_blocking().unwrap());
    registry.lock_all(["a", "b"]).acquire_blocking().unwrap().release_blocking().unwrap();
    let count = |call: &str| threads.0.lock().unwrap().iter().filter(|(of, _)| *of == call).count();
    let end = Instant::now() + Duration::from_secs(60);
    while count("close") < count("new") && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Three calls with one key, and one with two: a wait each, and a hold for each key.
    assert_eq!((count("new"), count("close")), (9, 9));
    assert!(count("record") >= 9, "{threads:?}", threads = threads.0.lock().unwrap());
    let all = threads.0.lock().unwrap();
    assert!(all.iter().all(|(_, thread)| thread != "dlock"), "{all:?}");
}

/// The level debug is off in most programs.
#[tokio::test]
async fn there_are_no_spans_unless_a_subscriber_wants_them() {
    let world = World::new();
    let layer = tracing_opentelemetry::layer().with_tracer(world._provider.tracer("dlock"));
    let level = tracing_subscriber::filter::LevelFilter::INFO;
    let _quiet = tracing_subscriber::registry().with(layer).with(level).set_default();
    let span = info_span!("quiet");
    let (trace, _) = ids(&span);
    world.lock().acquire().instrument(span).await.unwrap().release().await.unwrap();
    assert!(world.collector.spans("dlock.wait", &trace).is_empty());
    assert!(world.collector.spans("dlock.hold", &trace).is_empty());
}
