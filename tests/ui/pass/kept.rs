#![deny(warnings)]
#![forbid(unsafe_op_in_unsafe_fn)]
//! What stands around the body is kept: attributes, visibility, safety, inner attributes.

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

    /// # Safety
    /// None.
    #[distributed_lock(key = "raw")]
    pub(super) async unsafe fn read(pointer: &'static u8) -> Result<u8, Error> {
        let pointer: *const u8 = pointer;
        Ok(unsafe { *pointer })
    }

    #[deprecated]
    #[distributed_lock(key = "old")]
    pub async fn old() -> Result<(), Error> {
        #[cfg(any())]
        compile_error!("left out");
        Ok(())
    }
}

fn main() {
    drop(shop::count(1, 2));
    drop(unsafe { shop::read(&1) });
    #[allow(deprecated, reason = "it is the attribute that is looked at")]
    drop(shop::old());
}
