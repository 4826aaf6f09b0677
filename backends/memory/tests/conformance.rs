//! The conformance suite over the memory store.

#[path = "suite/memory.rs"]
mod memory;

use std::process::ExitCode;

use dlock_testkit::conformance;

fn main() -> ExitCode {
    conformance::main(&[("memory", || Ok(memory::memory()))])
}
