//! The stores that the pairs of these tests are made of.

// As the tests of their own crates open them.
#[path = "../../../sqlite/tests/suite/file.rs"]
mod file;
#[path = "../../../memory/tests/suite/memory.rs"]
mod memory;
mod server;

pub(crate) use file::file;
pub(crate) use memory::memory;
pub(crate) use server::{mysql, of_redis, postgres, redis};
