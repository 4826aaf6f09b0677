//! The marker under the name of a lock that several may hold.

use ::redis::{RedisWrite, ToRedisArgs};
use dlock_contract::Mode;

/// The beginning of all markers. No owner begins like this.
pub(crate) const MARKER: &str = "dlock:";

/// The value under the lock's name. It says which family the lock has: readers and writers, or a number of permits.
pub(crate) struct Marker(pub(crate) Mode);

impl ToRedisArgs for Marker {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self.0 {
            Mode::Permits(most) => out.write_arg_fmt(format_args!("{MARKER}permits:{most}")),
            _ => out.write_arg_fmt(format_args!("{MARKER}rw")),
        }
    }
}
