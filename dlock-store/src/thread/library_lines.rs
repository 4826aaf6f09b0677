//! Lines that client libraries write to `tracing` on our thread, such as those of h2 and of ZooKeeper's client.
//!
//! A layer of the user's would run where the line is written. So our thread has a subscriber of its own, which sends warnings
//! and errors to the thread of the log lines, and leaves the other lines out.
//!
//! Each place in a library writes at most one line in a minute, and the others have the level debug. All lines of ZooKeeper's client
//! have it: in an outage of half a minute it wrote a thousand warnings about its connections. Our own lines say the same, with the
//! name of the store.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use dlock_contract::engine::caught;
use tracing::dispatcher::{DefaultGuard, Dispatch, has_been_set, set_default};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata};

use crate::thread::background::{aside, is_ours};
use crate::thread::log::{Seldom, line};

/// The subscriber of our thread.
static OF_OUR_THREAD: OnceLock<Dispatch> = OnceLock::new();

/// Makes the subscriber of our thread, once the program has layers. Not on our thread, since the layers are shown all places of the
/// program that write lines. Without layers, lines may go to the crate `log`, and a subscriber would end that for the whole program.
pub(crate) fn prepare() {
    if has_been_set() {
        caught(|| OF_OUR_THREAD.get_or_init(|| Dispatch::new(ToLogThread)));
    }
}

/// On our thread: keeps the layers of the program away from it, once there are any.
pub(crate) fn keep_layers_away() {
    thread_local!(static KEPT: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) });
    static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
    if !has_been_set() || !is_ours() {
        return;
    }
    if let Some(ours) = OF_OUR_THREAD.get() {
        let keep = |kept: &RefCell<Option<_>>| {
            kept.borrow_mut().get_or_insert_with(|| set_default(ours));
        };
        // Gone when the process ends.
        let _ = KEPT.try_with(keep);
    } else if !IS_ASKED_FOR.swap(true, Ordering::Relaxed) {
        // The program has got its layers after our thread. It is woken for the next time by its work.
        if aside("dlock-layers", prepare).is_err() {
            IS_ASKED_FOR.store(false, Ordering::Relaxed);
        }
    }
}

static TOLD: Seldom = Seldom::new();

const ZOOKEEPER: &str = "zookeeper_client";

struct ToLogThread;

impl Subscriber for ToLogThread {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Not `always`: for the other threads, the layers of the program decide.
        if self.enabled(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let (library, level) = (event.metadata().target().to_owned(), *event.metadata().level());
        let mut text = Text(String::new());
        event.record(&mut text);
        let Text(text) = text;
        // The name of an event is its place: `event src/session.rs:123`.
        let place = || format!("{library} {}", event.metadata().name());
        let is_told = !library.starts_with(ZOOKEEPER) && TOLD.passes(place());
        line(move || match level {
            _ if !is_told => tracing::debug!(target: "dlock", library, "{text}"),
            Level::ERROR => tracing::error!(target: "dlock", library, "{text}"),
            _ => tracing::warn!(target: "dlock", library, "{text}"),
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of a line, and its fields.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a text does not fail, but the value may.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}
