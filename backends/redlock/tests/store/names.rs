//! The names on the nodes, for tests that read the nodes without the backend. They are written out here alone.

use dlock_testkit::holds;

/// The counter of fencing tokens.
pub(crate) const FENCE: &str = "dl1:fence";

/// The lock of the claims on `k`.
pub(crate) const K: &str = "dl1:{test:<k>}";

/// All locks.
pub(crate) const LOCKS: &str = "dl1:{*";

#[test]
fn the_name_of_a_lock_on_a_node_is_frozen() {
    let name = dlock_redis::internal::layout::in_redis(&holds::key("k"));
    assert_eq!(name, K);
}
