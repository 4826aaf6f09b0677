//! Where the lines of a run of tests go.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use crate::sh::Result;

/// The terminal, or a file of the run's own.
pub(crate) enum Log {
    Terminal,
    File(File),
}

impl Log {
    /// An empty file at this path.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self::File(file))
    }

    pub(crate) fn line(&self, line: &str) {
        let written = match self {
            Self::Terminal => writeln!(io::stderr(), "{line}"),
            Self::File(file) => (&mut &*file).write_all(format!("{line}\n").as_bytes()),
        };
        // Nobody reads the log any more. The tests go on.
        drop(written);
    }

    /// Sends the standard error of a program here too.
    pub(crate) fn takes_errors_of(&self, command: &mut Command) -> Result {
        if let Self::File(file) = self {
            command.stderr(file.try_clone()?);
        }
        Ok(())
    }
}
