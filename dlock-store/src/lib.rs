//! The parts with which a store for dlock is written.
//!
//! A store implements `Backend` of the crate `dlock-contract`. These parts do what every store needs:
//!
//! | part | for |
//! | --- | --- |
//! | [`background`], [`Run`], [`aside`] | work on dlock's own thread, which goes on when a caller is busy or gone |
//! | [`PerRuntime`], [`CallerRuntime`] | one connection for each tokio runtime |
//! | [`ClaimStates`], [`detached`] | what a store knows of a claim, and requests of it that run to their end |
//! | [`Clock`] | deadlines that go on while the machine is suspended |
//! | [`Address`], [`UrlForm`], [`Opener`] | the URL of a store, its options, and the opening by URL |
//! | [`Names`], [`Tls`], [`Secret`] | host names, TLS, and passwords that no text shows |
//! | [`Streaks`] | the share of a process that asks again and again while another one waits |
//! | [`refuse_older`] | the oldest version of the server |
//! | [`line()`], [`Seldom`], [`drop_elsewhere`] | code of the user's that must not run on dlock's own thread: log lines, values, wakers |
//!
//! How to write a store: `docs/ADDING_A_BACKEND.md` and `examples/custom_backend.rs` of the repository.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod address;
mod claim_states;
mod clock;
mod own_thread;
mod per_runtime;
mod sleep;
mod streaks;
mod thread;
mod version;

pub use address::names::Names;
pub use address::opener::{Check, Open, Opener};
pub use address::secret::Secret;
pub use address::tls::{Tls, TlsMode};
pub use address::url_form::{OptionRow, UrlBody, UrlForm};
pub use address::{Address, Host};
pub use claim_states::{ClaimStates, StateAccess, detached, next_access};
pub use clock::Clock;
pub use own_thread::{Run, background};
pub use per_runtime::{Opened, PerRuntime};
pub use sleep::{Sleep, TimeoutAt};
pub use streaks::Streaks;
pub use thread::background::{Background, CallerRuntime, EndsTask, aside, is_forked, is_ours};
pub use thread::foreign::{drop_elsewhere, foreign_thread};
pub use thread::log::{Seldom, line};
pub use version::refuse_older;

/// Parts that only the engine uses. No part of the public interface: it may change in any release.
#[doc(hidden)]
pub mod engine {
    pub use crate::clock::sleepers::wake;
    pub use crate::own_thread::{background_of, lock_unless_forked, not_forked};
    pub use crate::thread::background::{SoleThread, origin_and_sole_thread, sole_thread};
    pub use crate::thread::foreign::{Guarded, guarded, poll_guarded};

    /// The seams of the simulation.
    pub mod simulation {
        #[cfg(feature = "simulation")]
        pub use crate::thread::simulation::{SimulatedThread, plant};
        pub use crate::thread::simulation::{is_here, planted};
    }
}
