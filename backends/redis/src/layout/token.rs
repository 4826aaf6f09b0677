//! Fencing tokens: the name of their counter, and their range.

/// The counter of all fencing tokens of this server.
pub const FENCE: &str = "dl1:fence";

/// A token below this is no token of ours: the counter is never below the server's clock in µs, which passed it in 2005.
pub const LEAST_TOKEN: u64 = 1 << 50;

/// From here on Lua's numbers are not exact. The clock comes here in 2255.
pub const TOKEN_END: u64 = 1 << 53;
