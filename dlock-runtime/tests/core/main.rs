//! The engine on the memory store: every promise of a hold, and every way in which one may break.
//!
//! Time is a manual clock wherever it matters, so nothing here sleeps; the few tests on the machine's clock say why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::async_yields_async,
    reason = "tests say what they expect by panicking, print their seed, and give tasks out of bodies"
)]

mod abandon;
mod acquire;
mod batch;
mod begins;
mod blocking;
mod body_runs_on;
mod cancel;
mod cleanup;
mod cohort;
mod cohort_ends;
mod cohort_ids;
#[cfg(debug_assertions)]
mod dropped_at_once;
mod elect;
mod elect_lead;
mod elect_watch;
mod extremes;
mod findings;
mod guard;
mod inspect;
mod joined;
mod leftovers;
mod limits;
mod local_sets;
mod loss;
mod modes;
mod nesting;
mod observers;
#[cfg(debug_assertions)]
mod order;
mod outage;
mod outage_ends;
mod outage_log;
mod outage_neighbours;
mod periods;
mod registry;
mod release_to_next;
mod release_to_next_ends;
mod renewal;
mod renewal_late;
mod rerun;
mod run;
mod runtimes;
mod scopes;
mod sessions;
mod settling;
mod several;
mod shutdown;
mod strangers;
mod stress;
mod support;
mod told_later;
mod turns;
mod unpolled;
mod unpolled_later;
mod user_code;
mod wakers;
