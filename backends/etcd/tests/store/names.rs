//! The names in the server, for tests that grant rights or write beside the backend. They are written out here alone.

use dlock::{Key, LockKey};
use dlock_contract::Backend;

use crate::server::process;

/// How the keys of all locks begin.
pub(crate) const LOCKS: &str = "dl1:";

/// How the keys begin by which a late request is refused.
pub(crate) const EPOCHS: &str = "dl1-epoch/";

#[tokio::test]
async fn the_names_of_a_locks_keys_are_frozen() {
    let key = LockKey::new("shop", Key::text("a/").value(&42)).unwrap();
    assert_eq!(process().await.identify(&key).unwrap().names(), ["dl1:shop:a%2F<42>/"]);
}
