//! Test support: [private servers](servers), a [fault proxy](proxy), [child processes](child), [misspelt URLs](slips)
//! and the [lateness] of the machine. With the feature `stores` also what the tests of each store share: claims and holds,
//! and the conformance suite as a test target.
//!
//! Nothing here touches the system's own servers: every instance lives in a temporary folder, listens on a free port
//! of 127.0.0.1 and ends with the process that started it, also when that one is killed.
//!
//! ```no_run
//! use dlock_testkit::servers::{Instance, Redis, shared};
//!
//! # fn main() -> Result<(), dlock_testkit::Error> {
//! // One that all tests of this process share; keys must differ.
//! let url = shared().redis()?;
//!
//! // One of my own, to be stopped, killed and restarted.
//! let redis = Instance::start(Redis { aof_always: true, ..Redis::default() })?;
//! redis.ask("SET answer 42")?;
//! redis.kill9()?;
//! redis.restart()?;
//! assert_eq!(redis.ask("GET answer")?, "42");
//! # Ok(())
//! # }
//! ```

mod children;
mod error;
mod find;
mod first_contact;
mod hanging_file;
mod host_name;
pub mod lateness;
mod log;
mod loss;
mod nobody;
mod peer;
mod preloaded;
mod probe;
mod processes;
pub mod proxy;
pub mod servers;
pub mod slips;
mod spawn;
#[cfg(feature = "stores")]
mod stores;
mod thorough;
mod wait;

pub use error::{Error, Result};
pub use first_contact::{first_contact_table, first_contact_text, port_of_nobody, server_that_says};
pub use hanging_file::HangingFile;
pub use host_name::HostName;
pub use log::Log;
pub use loss::until_lost;
pub use peer::Peer;
pub use probe::{drop_after, text_of};
pub use processes::child;
pub use proxy::{Mode, Proxy};
#[cfg(feature = "stores")]
pub use stores::{a_closed_store_opens_nothing, clock_jumps, conformance, holds, in_real_time};
pub use thorough::is_thorough;
pub use wait::{block_until, wait_until};
