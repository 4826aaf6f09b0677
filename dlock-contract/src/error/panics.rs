//! Panics of code that is not ours.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the user or of a library. A panic in it ends that code alone, and gives `None`.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(output) => Some(output),
        Err(payload) => {
            // The payload of the panic is a value of the user, and its drop may panic.
            if let Err(another) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
                std::mem::forget(another);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::caught;

    #[test]
    fn a_panic_whose_payload_panics_comes_to_nobody() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::panic_any(Self);
            }
        }
        assert!(caught(|| std::panic::panic_any(Bomb)).is_none());
        assert_eq!(caught(|| 1), Some(1));
    }
}
