//! The attribute above `#[tokio::main]`, which makes the function a plain one.

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "main", backend = "not installed")]
#[tokio::main]
async fn locked_main() -> Result<(), Error> {
    Ok(())
}

pub(crate) fn make() {
    // There is no such backend, and so the body was not run.
    assert!(locked_main().is_err());
}
