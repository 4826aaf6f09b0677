//! `cargo xtask faults`: random faults on a real store. The target `process` has the workers and the nemesis, and understands the words.

mod every_store;
mod program;

use self::program::{install_for, program};
use crate::sh::{Result, run};

pub(crate) fn run_faults(words: &[&str]) -> Result {
    if let ["--all", words @ ..] = words {
        return every_store::run_all(words);
    }
    if let Some(["--store", store]) = words.chunks(2).find(|pair| pair[0] == "--store") {
        install_for(store)?;
    }
    run(&mut program(if words.is_empty() { &["--store"] } else { words }))
}
