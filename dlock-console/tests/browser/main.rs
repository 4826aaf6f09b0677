//! The page in a real browser, on a program under load, with keys that are made to harm it. `cargo xtask browser` runs it, and
//! a plain `cargo test` does not build it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod chromium;
mod hostile;
mod keyboard;
mod looks;
mod outage;
mod service;
