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
mod answer;
mod backend;
mod backoff;
mod claim;
mod clock;
mod error;
mod fence;
mod health;
mod hold;
mod identity;
mod inspect;
mod key;
mod mode;
mod note;
mod once_per;
mod owner;
mod powers;
mod profile;
mod session;
mod thread;

pub use address::opener::{Check, Open, Opener};
pub use address::secret::Secret;
pub use address::tls::{Tls, TlsMode};
pub use address::url_form::{OptionRow, UrlBody, UrlForm};
pub use address::{Address, Host};
pub use answer::{Attempt, Queue, Released, Signal, Standing, Wake};
pub use backend::Backend;
pub use backoff::Backoff;
pub use claim::Claim;
pub use clock::instant::BootInstant;
pub use clock::{Clock, Sleep, TimeoutAt};
pub use error::{Error, ErrorKind, LossCause, Result};
pub use fence::Fence;
pub use health::Health;
pub use hold::{Hold, Validity};
pub use identity::Identity;
pub use inspect::{BreakRecord, Cursor, HoldId, Holder, Inspect, Listing, LockState, Page};
pub use key::part::{KeyPart, KeyWriter};
pub use key::{Key, LockKey, MAX_KEY_BYTES};
pub use mode::Mode;
pub use note::{MAX_NOTE_BYTES, Note};
pub use once_per::OncePer;
pub use owner::Owner;
pub use powers::{
    Batch, Exchange, Keeps, LastSuccess, Periods, Reservation, Reserved, RunEnd, Settle, Together, Tokens,
};
pub use profile::{Durability, Expiry, Fencing, Profile, REMOTE_POLL, RunsOn, TtlRange, WakeStyle};
pub use session::Session;
pub use thread::origin::Origin;
pub use thread::per_runtime::{Opened, PerRuntime};

/// Parts that only the engine and our own stores use. No part of the public interface: it may change in any release. The same
/// holds for every item of this crate that is marked `#[doc(hidden)]`.
#[doc(hidden)]
pub mod engine {
    pub use crate::address::names::Names;
    pub use crate::address::percent::decode as percent_decode;
    pub use crate::clock::sleepers::wake;
    pub use crate::fence::{check_resource, judge, listen_to_refused_writes};
    pub use crate::hold::margin;
    pub use crate::key::sensitive::key_hash;
    pub use crate::key::template::without_names;
    pub use crate::key::{KeyBuf, KeyBuilder, check_namespace};
    pub use crate::thread::background::{
        CallerRuntime, EndsTask, SoleThread, aside, is_ours, origin_and_sole_thread, sole_thread,
    };
    pub use crate::thread::claim_states::{ClaimStates, StateAccess, detached, next_access};
    pub use crate::thread::foreign::{Guarded, caught, drop_elsewhere, foreign_thread, guarded, poll_guarded};
    pub use crate::thread::log::line;
    pub use crate::thread::own_thread::{Run, background, background_of, is_forked, lock_unless_forked, not_forked};

    /// The seams of the simulation.
    pub mod simulation {
        #[cfg(feature = "simulation")]
        pub use crate::thread::simulation::{SimulatedThread, plant};
        pub use crate::thread::simulation::{is_here, planted};
    }
}
