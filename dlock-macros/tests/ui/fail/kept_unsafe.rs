//! An `unsafe fn` stays one: the only mistakes here are the calls.

use dlock::{Error, distributed_lock};

/// # Safety
/// The pointer is good.
#[distributed_lock(key = "raw")]
async unsafe fn read(pointer: &u8) -> Result<u8, Error> {
    let pointer: *const u8 = pointer;
    Ok(unsafe { *pointer })
}

/// # Safety
/// The pointer is good.
#[distributed_lock(key = "raw")]
unsafe fn read_blocking(pointer: &u8) -> Result<u8, Error> {
    let pointer: *const u8 = pointer;
    Ok(unsafe { *pointer })
}

fn main() {
    drop(unsafe { read_blocking(&1) });
    drop(read_blocking(&1));
    drop(unsafe { read(&1) });
    drop(read(&1));
}
