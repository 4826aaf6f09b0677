//! The cases: one promise each.

mod alert;
mod cancelled;
mod cohort;
mod forked;
mod killed;
mod leader;
pub(crate) mod modes;
mod nemesis;
mod network;
pub(crate) mod own_process;
mod pairs;
mod runtimes;
mod server_stopped;
mod stopped;
mod transaction;

pub(crate) use nemesis::trials as checker_trials;

use crate::arena::{Arena, Server};
use crate::store::Store;

/// A promise, the stores that it applies to, and how it is tried.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) applies: fn(Store) -> bool,
    pub(crate) server: Server,
    pub(crate) run: fn(&Arena),
}

const ANY: fn(Store) -> bool = |_| true;
const SHARED: fn(Store) -> bool = Store::is_shared;
const REMOTE: fn(Store) -> bool = Store::is_remote;
const PERMITS: fn(Store) -> bool = Store::has_permits;
const PASSES: fn(Store) -> bool = Store::passes_holds_on;
const ROWS: fn(Store) -> bool = Store::is_row_lock;
const PAIRS: fn(Store) -> bool = |store| store == Store::Paired;

macro_rules! cases {
    ($($applies:ident $server:ident $module:ident :: $name:ident,)*) => {
        &[$(Case { name: stringify!($name), applies: $applies, server: Server::$server, run: $module::$name },)*]
    };
}

/// All of them, most important first.
pub(crate) const ALL: &[Case] = cases![
    SHARED Shared killed::kill_9_holder,
    SHARED Shared killed::kill_9_holder_before_anybody_waits,
    SHARED Shared killed::kill_9_waiter_does_not_block_the_line,
    SHARED Shared killed::a_stopped_waiter_neither_blocks_the_line_nor_uses_an_old_grant,
    PERMITS Shared modes::kill_9_holder_of_every_mode,
    SHARED Shared nemesis::at_most_one_holder_whatever_befalls_the_processes,
    SHARED Shared stopped::a_stopped_holder_learns_of_its_loss_and_writes_nothing,
    ANY Shared leader::a_resignation_hands_over_with_a_higher_term_and_observers_see_it,
    ANY Shared leader::candidates_are_named_in_their_order_where_the_store_knows_them,
    SHARED Shared leader::kill_9_leader,
    SHARED Shared leader::a_stopped_leader_drops_its_body_and_leads_again_after_the_next_resigns,
    REMOTE Shared leader::a_leader_that_is_cut_off_drops_its_body_and_leads_again_after_the_next_resigns,
    ANY Own cancelled::two_hundred_dropped_acquisitions_leave_nothing,
    ANY Shared own_process::a_panic_releases,
    ANY Shared own_process::a_blocking_body_keeps_the_lock,
    SHARED Shared own_process::the_end_of_main_leaves_no_lock,
    SHARED Shared forked::a_forked_child_leaves_its_parents_lock_alone,
    ANY Shared runtimes::a_runtime_shut_down_during_a_hold_frees_it,
    ANY Shared runtimes::a_guard_outlives_its_runtime,
    ANY Shared runtimes::two_runtimes_share_one_registry,
    PASSES Shared cohort::a_pass_wakes_no_other_thread,
    ANY Shared alert::a_timeout_raises_an_alert,
    REMOTE Shared network::a_silent_network_is_a_loss_by_the_own_deadline,
    REMOTE Shared network::a_network_silent_one_way_is_a_loss_too,
    REMOTE Shared network::a_lost_reply_to_a_release_frees_in_time,
    REMOTE Shared network::a_lost_reply_to_a_renewal_makes_no_second_holder,
    REMOTE Shared network::a_late_grant_is_short_or_refused,
    REMOTE Own server_stopped::a_stopped_server_makes_no_second_holder,
    ROWS Shared transaction::kill_9_in_the_body_undoes_its_work,
    ROWS Shared transaction::a_session_that_is_ended_in_the_body_undoes_its_work_and_fails_the_call,
    PAIRS Shared pairs::workers_that_do_not_reach_the_gate_exclude_those_that_do,
    PAIRS Shared pairs::workers_that_do_not_reach_the_gate_or_the_authority_exclude_those_that_do,
    PAIRS Shared pairs::a_rolling_deployment_from_one_store_to_another_never_overlaps,
];

/// The seed of a trial that chooses at random: printed, and taken from the environment to repeat it.
fn seed(arena: &Arena) -> u64 {
    let seed = std::env::var("DLOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{}: DLOCK_SEED={seed}", arena.store.name());
    seed
}
