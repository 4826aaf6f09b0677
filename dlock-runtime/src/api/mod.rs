//! The public face: the registry, the builder, and what an annotated function becomes.
//!
//! Owns the registry, the locked call ([`run`], [`blocking`]), its return types, leadership ([`elect`]), the catalogue of
//! all functions and the items that only expansions name ([`fallback`], [`lazy_return`], [`optimistic`]).
//!
//! May know everything below. Nothing in the engine may know it.

pub(crate) mod blocking;
pub(crate) mod break_hold;
pub(crate) mod catalogue;
pub(crate) mod connect;
pub(crate) mod elect;
mod env;
pub(crate) mod fallback;
pub(crate) mod inspect;
pub(crate) mod key_of;
pub(crate) mod lazy_return;
pub(crate) mod lock;
pub(crate) mod lookalikes;
pub(crate) mod optimistic;
pub(crate) mod outcome;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod tuning;
pub(crate) mod waited;
pub(crate) mod waiters;
