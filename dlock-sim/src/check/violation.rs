//! A broken promise.

use std::fmt;

use crate::history::seconds;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub rule: Rule,
    /// When it was seen.
    pub at: u64,
    /// The calls that take part in it.
    pub calls: Vec<u32>,
}

/// The promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Two bodies believe at one moment that they have one lock, or more than may have it, or one permit.
    OneBeliever,
    /// A body acts although its process knows that it has no lock.
    ActsWithoutLock,
    /// A body does not hear of the loss of its lock by its deadline.
    LossIsTold,
    /// A call succeeds although its lock did not last as long as its body.
    OkIsCovered,
    /// A later grant has no higher token.
    TokensRise,
    /// A call takes several keys in another order than that of their names.
    OrderOfKeys,
    /// A hold lasts longer than its `max_hold`.
    MaxHold,
    /// A write to a resource that compares tokens overwrites one that its body had not read.
    FencedWrites,
    /// A key is granted again before its `min_hold` has passed, or kept although no body had it.
    MinHold,
    /// A fair call has its lock before one that came before it.
    InOrder,
    /// Two bodies begin in one period.
    OncePerPeriod,
    /// A call gets neither its lock nor an error in time, or does not come to its end.
    NoHang,
    /// Work of a body is final although its call has failed, or undone although its call has succeeded.
    WorkFollowsResult,
    /// A call fails in a way that nothing allows.
    ErrorKind,
    /// Something is left at the end that nobody wants.
    NothingIsLeft,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} s, calls {:?}", self.rule, seconds(self.at), self.calls)
    }
}
