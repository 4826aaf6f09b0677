//! The contract of dlock: what a store and the engine say to each other.
//!
//! Authors of stores implement [`Backend`]; the suite of `dlock-conformance` says whether an implementation is right.
//! Users of locks take the crate `dlock-rs` instead, which has all that they need of this one.
//!
//! Parts with which a store is written, such as our thread, addresses and TLS, are in the crate `dlock-store`. This crate
//! knows no store, no client of a store, no thread, and nothing of waiting, renewing and releasing.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod backend;
mod backoff;
mod claim;
mod error;
mod fence;
mod health;
mod hold;
mod hold_id;
mod identity;
mod inspect;
mod instant;
mod key;
mod mode;
mod note;
mod once_per;
mod origin;
mod owner;
mod powers;
mod profile;
mod session;

pub use answer::{Attempt, Queue, Released, Signal, Standing, Wake};
pub use backend::Backend;
pub use backoff::Backoff;
pub use claim::Claim;
pub use error::{Error, ErrorKind, LossCause, Result};
pub use fence::Fence;
pub use health::Health;
pub use hold::{Hold, Validity};
pub use hold_id::HoldId;
pub use identity::Identity;
pub use inspect::{BreakRecord, Cursor, Holder, Inspect, Listing, LockState, Page};
pub use instant::BootInstant;
pub use key::part::{KeyPart, KeyWriter};
pub use key::{Key, LockKey, MAX_KEY_BYTES};
pub use mode::Mode;
pub use note::{MAX_NOTE_BYTES, Note};
pub use once_per::OncePer;
pub use origin::Origin;
pub use owner::Owner;
pub use powers::{
    Batch, Exchange, Keeps, LastSuccess, Periods, Reservation, Reserved, RunEnd, Settle, Together, Tokens,
};
pub use profile::{Durability, Expiry, Fencing, Profile, REMOTE_POLL, RunsOn, TtlRange, WakeStyle};
pub use session::Session;

/// Parts that only the engine uses. No part of the public interface: it may change in any release. The same holds for every
/// item of this crate that is marked `#[doc(hidden)]`.
#[doc(hidden)]
pub mod engine {
    pub use crate::error::panics::caught;
    pub use crate::fence::listen_to_refused_writes;
    pub use crate::key::percent::decode as percent_decode;
    pub use crate::key::sensitive::key_hash;
    pub use crate::key::template::without_names;
    pub use crate::key::{KeyBuf, KeyBuilder};
    #[cfg(feature = "simulation")]
    pub use crate::owner::follow_seed;
}
