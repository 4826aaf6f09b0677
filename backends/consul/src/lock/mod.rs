//! Locks made of sessions and keys. From the bottom to the top: names and values, the parts that requests share, one file
//! for each request.

pub(crate) mod acquire;
pub(crate) mod claim_state;
pub(crate) mod exclusive;
pub(crate) mod inspect;
pub(crate) mod name;
pub(crate) mod permit;
pub(crate) mod permits;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod shared;
pub(crate) mod try_result;
pub(crate) mod value;
pub(crate) mod wait;
pub(crate) mod watch;
