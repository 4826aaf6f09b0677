#![deny(warnings)]
//! The parts around the body are kept: attributes, visibility, inner attributes.

use dlock::{Error, distributed_lock};

mod shop {
    use super::*;

    /// Documented.
    #[must_use = "count it"]
    #[cfg(not(any()))]
    #[distributed_lock(key = "count:<id>")]
    pub(crate) async fn count(id: u64, #[cfg(any())] missing: u8, #[allow(unused)] extra: u8) -> Result<u64, Error> {
        #![allow(unused_variables, reason = "an inner attribute")]
        let unused = 5;
        Ok(id)
    }

    #[cfg(any())]
    #[distributed_lock(key = "count:<id>")]
    pub(crate) async fn count(id: Missing) {}

    #[deprecated]
    #[distributed_lock(key = "old")]
    pub(crate) async fn old() -> Result<(), Error> {
        #[cfg(any())]
        compile_error!("left out");
        Ok(())
    }
}

pub(crate) fn make() {
    drop(shop::count(1, 2));
    #[allow(deprecated, reason = "it is the attribute that is looked at")]
    drop(shop::old());
}
