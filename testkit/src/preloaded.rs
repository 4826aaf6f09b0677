//! Small libraries in C that a program of a test loads before all others, so that they take the place of the system's functions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Context;
use crate::find::{find_program, missing};
use crate::{Error, Result};

/// Compiles a library into this folder, by what links Rust's programs too, and returns where it is.
pub(crate) fn compile(folder: &Path, name: &str, source: &str) -> Result<PathBuf> {
    let (text, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    fs::write(&text, source).context("a library's source")?;
    let mut command = Command::new(find_program("cc").ok_or_else(|| missing("cc"))?);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(text).arg("-ldl");
    let output = command.stdin(Stdio::null()).output().context("cc")?;
    match output.status.success() {
        true => Ok(library),
        false => Err(Error::new(format!("cc failed: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}
