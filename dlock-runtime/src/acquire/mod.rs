//! From a request to a guard: options, turn, attempts, waiting.
//!
//! Owns the request of one call ([`request`]), the thread of its caller ([`callers_thread`]), what it looks up ([`context`]), a store that is opened at its
//! first use ([`lazy`]) by a call ([`opening`]), the request for one key ([`single`]) and its [`acquisition`], and the requests
//! for several ([`several`]), or for all of them together ([`batch`]).
//!
//! May know guards and holds; nothing of the body that runs under the lock, and no public builder.

pub(crate) mod acquisition;
pub(crate) mod batch;
pub(crate) mod callers_thread;
pub(crate) mod contend;
pub(crate) mod context;
pub(crate) mod joined;
pub(crate) mod lazy;
pub(crate) mod of_this_process;
pub(crate) mod opening;
pub(crate) mod refused;
pub(crate) mod request;
pub(crate) mod self_wait;
pub(crate) mod several;
pub(crate) mod single;
#[cfg(feature = "testing")]
pub(crate) mod test_kits;
pub(crate) mod thread_registry;
pub(crate) mod turn;
mod unpolled;
pub(crate) mod wait;
