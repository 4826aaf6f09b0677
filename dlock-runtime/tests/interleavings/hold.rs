//! The files of the engine about the end of a hold.

#[path = "../../src/hold/hold_state.rs"]
pub(crate) mod hold_state;
#[path = "../../src/hold/listeners.rs"]
pub(crate) mod listeners;
