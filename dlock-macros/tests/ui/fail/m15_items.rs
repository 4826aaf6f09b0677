//! Only async functions can be locked.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a")]
struct Struct {
    field: u8,
}

#[distributed_lock(key = "a")]
pub enum Enum {}

#[distributed_lock(key = "a")]
unsafe trait Trait {}

#[distributed_lock(key = "a")]
impl Struct {}

#[distributed_lock(key = "a")]
mod module {}

#[distributed_lock(key = "a")]
const CONSTANT: u8 = 0;

#[distributed_lock(key = "a")]
const fn constant() -> u8 {
    0
}

#[distributed_lock(key = "a")]
extern "C" fn foreign() -> u8 {
    0
}

unsafe extern "C" {
    #[distributed_lock(key = "a")]
    fn printf(format: *const u8, ...) -> i32;
}

fn main() {}
