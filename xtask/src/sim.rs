//! `cargo xtask sim`: the simulation of the engine, whose words are its own business.

use crate::sh::{Result, cargo, run};

pub(crate) fn run_sim(words: &[&str]) -> Result {
    let mut simulation = cargo(&["run", "--release", "--quiet", "--package", "dlock-sim", "--"]);
    run(simulation.args(words))
}
