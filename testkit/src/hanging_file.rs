//! A file whose reading hangs, as on a disk that does not answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::error::{Context, Error, Result};

/// A pipe without a writer: it cannot even be opened.
#[derive(Debug)]
pub struct HangingFile {
    _folder: TempDir,
    path: PathBuf,
}

impl HangingFile {
    /// A file of its own.
    ///
    /// # Errors
    /// If the operating system makes no pipe.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for a pipe")?;
        let path = folder.path().join("hangs");
        let made = Command::new("mkfifo").arg(&path).status().context("mkfifo")?;
        if made.success() { Ok(Self { _folder: folder, path }) } else { Err(Error::new("mkfifo failed")) }
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the hang: a reader that waits gets this text. Waits for a reader.
    ///
    /// # Errors
    /// If the reader goes away.
    pub fn answer(&self, text: &str) -> Result<()> {
        fs::write(&self.path, text).context("the text for a reader")
    }
}
