//! `cargo xtask browser`: the console's page in a real browser, on a program under load, with keys that are made to harm it. It
//! also makes the pictures of the documentation. The tests need more than Rust, so they are a test target of their own, which
//! `cargo test` and `cargo xtask test` leave out.

use dlock_testkit::servers::{CHROMIUM, PINS, Pin};

use crate::parts::Parts;
use crate::servers;
use crate::sh::{Result, cargo, root, run};

/// Where the pictures are. The tests read this variable.
const PICTURES: (&str, &str) = ("DLOCK_PICTURES", "docs/pictures");

pub(crate) fn run_browser() -> Result {
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = steps(&mut parts);
    parts.finish()
}

fn steps(parts: &mut Parts) -> Result {
    let redis = PINS.iter().filter(|pin| pin.is_for("redis"));
    let needed: Vec<&'static Pin> = redis.chain([&CHROMIUM]).collect();
    parts.run("servers", || servers::install(&needed))?;
    let mut command = cargo(&["test", "--package", "dlock-console", "--test", "browser"]);
    command.env(PICTURES.0, root().join(PICTURES.1));
    parts.run("tests", || run(&mut command))
}
