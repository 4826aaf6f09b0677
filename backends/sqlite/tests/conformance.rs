//! The conformance suite over the SQLite store.

#[path = "suite/file.rs"]
mod file;

use std::process::ExitCode;

use dlock_testkit::conformance;

fn main() -> ExitCode {
    conformance::main(&[("sqlite", file::file)])
}
