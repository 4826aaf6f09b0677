//! Wall clocks of servers, to be set by tests. The machine's own stays as it is.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::Recipe;
use super::changed::Changed;
use crate::error::Context;
use crate::{Result, preloaded};

/// The wall clock of one server, which a small library gives to it that is loaded before all others. Servers that ask the
/// kernel for the time by themselves, as those written in Go do, have a [`VdsoClock`](super::VdsoClock) instead.
#[derive(Clone, Debug)]
pub struct WallClock(Arc<TempDir>);

impl WallClock {
    /// One that goes as the machine's does.
    pub fn new() -> Result<Self> {
        // A server that refuses to run as root reads it as `nobody`.
        let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir();
        let clock = Self(Arc::new(folder.context("a folder for a clock")?));
        fs::write(clock.file("ahead"), 0_i64.to_ne_bytes()).context("a clock's file")?;
        preloaded::compile(clock.0.path(), "wall_clock", include_str!("wall_clock.c"))?;
        Ok(clock)
    }

    /// Sets the clock this many seconds ahead of the machine's, or behind.
    pub fn set_ahead(&self, seconds: i64) -> Result<()> {
        let nanos = seconds.saturating_mul(1_000_000_000);
        // In place: the server has mapped this file.
        let file = OpenOptions::new().write(true).open(self.file("ahead"));
        file.and_then(|mut file| file.write_all(&nanos.to_ne_bytes())).context("a clock's file")
    }

    /// A server that has it.
    pub fn of<R: Recipe>(&self, recipe: R) -> impl Recipe + use<R> {
        let clock = self.clone();
        Changed::new(recipe, move |_, mut command| {
            clock.give_to(&mut command);
            Ok(command)
        })
    }

    /// Gives it to a server, which then lives in a zone with summer time.
    pub(super) fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.library()).env("DLOCK_AHEAD", self.file("ahead"));
        command.env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3");
    }

    fn library(&self) -> PathBuf {
        self.file("wall_clock.so")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
