//! The contract of dlock: what a store and the engine say to each other.
//!
//! Authors of stores implement [`Backend`]; the suite of `dlock-conformance` says whether an implementation is right.
//! Users of locks take the crate `dlock-rs` instead, which has all that they need of this one.
//!
//! This crate knows no store, no client of a store, and nothing of waiting, renewing and releasing.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod address;
mod alarm;
mod answer;
mod backend;
mod background;
mod backoff;
mod claim;
mod claim_states;
mod clock;
mod error;
mod error_kind;
mod fence;
mod foreign;
mod health;
mod hold;
mod identity;
mod inspect;
mod instant;
mod key;
mod key_literal;
mod key_part;
mod key_template;
#[cfg(feature = "testing")]
mod kit_clock;
mod library_lines;
mod log;
mod mode;
mod names;
mod note;
mod once_per;
mod opener;
mod origin;
mod own_thread;
mod owner;
#[cfg(feature = "testing")]
mod paused;
mod per_runtime;
mod percent;
mod powers;
mod profile;
mod secret;
mod sensitive;
mod session;
mod simulation;
mod sleepers;
mod tls;
mod url_form;
#[cfg(any(feature = "axum", feature = "tonic"))]
mod web;

pub use address::{Address, Host};
pub use answer::{Attempt, Queue, Released, Signal, Standing, Wake};
pub use backend::Backend;
pub use backoff::Backoff;
pub use claim::Claim;
pub use clock::{Clock, Sleep, TimeoutAt};
pub use error::{Error, ErrorKind, LossCause, Result};
pub use fence::Fence;
pub use health::Health;
pub use hold::{Hold, Validity};
pub use identity::Identity;
pub use inspect::{BreakRecord, Cursor, HoldId, Holder, Inspect, Listing, LockState, Page};
pub use instant::BootInstant;
pub use key::{Key, LockKey, MAX_KEY_BYTES};
pub use key_part::{KeyPart, KeyWriter};
pub use mode::Mode;
pub use note::{MAX_NOTE_BYTES, Note};
pub use once_per::OncePer;
pub use opener::{Check, Open, Opener};
pub use origin::Origin;
pub use owner::Owner;
pub use per_runtime::{Opened, PerRuntime};
pub use powers::{
    Batch, Exchange, Keeps, LastSuccess, Periods, Reservation, Reserved, RunEnd, Settle, Together, Tokens,
};
pub use profile::{Durability, Expiry, Fencing, Profile, REMOTE_POLL, RunsOn, TtlRange, WakeStyle};
pub use secret::Secret;
pub use session::Session;
pub use tls::{Tls, TlsMode};
pub use url_form::{OptionRow, UrlBody, UrlForm};

/// Parts that only the engine and our own stores use. No part of the public interface: it may change in any release. The same
/// holds for every item of this crate that is marked `#[doc(hidden)]`.
#[doc(hidden)]
pub mod engine {
    pub use crate::background::{
        CallerRuntime, EndsTask, SoleThread, aside, is_ours, origin_and_sole_thread, sole_thread,
    };
    pub use crate::claim_states::{ClaimStates, StateAccess, detached, next_access};
    pub use crate::fence::{check_resource, judge, listen_to_refused_writes};
    pub use crate::foreign::{Guarded, caught, drop_elsewhere, foreign_thread, guarded, poll_guarded};
    pub use crate::hold::margin;
    pub use crate::key::{KeyBuf, KeyBuilder, check_namespace};
    pub use crate::key_template::without_names;
    pub use crate::log::line;
    pub use crate::names::Names;
    pub use crate::own_thread::{Run, background, background_of, is_forked, not_forked};
    pub use crate::percent::decode as percent_decode;
    pub use crate::sensitive::key_hash;
    pub use crate::sleepers::wake;

    /// The seams of the simulation.
    pub mod simulation {
        #[cfg(feature = "simulation")]
        pub use crate::simulation::{SimulatedThread, plant};
        pub use crate::simulation::{is_here, planted};
    }
}
