//! The facts of a history that are those of no single call.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The facts of a history that are those of no single call.
#[derive(Default)]
pub(super) struct Facts {
    /// The last instant.
    pub(super) end: u64,
    /// How late anything may be.
    pub(super) slack: u64,
    pub(super) forgets: Vec<Forgotten>,
    /// The ends of sessions that a process hears of, with the instants by which its bodies know them.
    pub(super) told: Vec<(Forgotten, u64)>,
    /// The holds whose bodies' work is final, by key and token.
    pub(super) settled: BTreeSet<(u32, u64)>,
    /// The runs of periods that have ended, as the store has noted it: when, the key and the token.
    pub(super) ended_runs: Vec<(u64, u32, u64)>,
    /// The holds whose keys the store keeps: when, the key and the token.
    pub(super) kept: Vec<(u64, u32, u64)>,
    /// Whether no request is lost.
    pub(super) is_faultless: bool,
    /// When the server has ended.
    pub(super) restarts: Vec<u64>,
    /// When the server has lost its memory.
    pub(super) lost_memory: Vec<u64>,
    pub(super) shuts_down: BTreeMap<u32, u64>,
    /// The keys that are asked for in modes that do not mix.
    pub(super) mixed: BTreeSet<u32>,
}

/// Holds that the store has forgotten, or whose sessions have ended before their time.
pub(super) struct Forgotten {
    pub(super) at: u64,
    pub(super) key: Option<u32>,
    pub(super) tokens: RangeInclusive<u64>,
}
