//! The runtime of dlock: what stands behind `#[distributed_lock]`. Use it through the crate `dlock-rs`.

mod backend;
pub mod backends;
mod background;
mod capabilities;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fenced;
mod key;
mod note;
mod options;
mod owner;

pub use backend::{Attempt, Backend, Claim, Fence, Hold, Released, Signal, Stand, Standing, Validity, Wake};
pub use background::{Opened, PerRuntime};
pub use capabilities::{Capabilities, Durability, Expiry, Fencing, REMOTE_POLL, TtlRange, WakeStyle};
pub use clock::{BootInstant, Clock, Sleep};
pub use error::{Error, ErrorKind, LossCause, Result};
pub use key::{Key, KeyPart, KeyWriter, LockKey, MAX_KEY_BYTES};
pub use note::{MAX_NOTE_BYTES, Note};
pub use options::{Defaults, Renew, Wait};
pub use owner::Owner;
