//! Some servers refuse to run as root. For root they run as `nobody`, with a folder that is theirs.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// Its number, and its group's, on every Linux.
const NOBODY: u32 = 65_534;

/// Lets the command run as `nobody`, if this process is root.
pub(crate) fn run_as(command: &mut Command) {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

/// Gives `nobody` a file or a folder, if this process is root.
pub(crate) fn give(path: &Path) -> io::Result<()> {
    if is_root() { chown(path, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

/// The same with all that is in a folder.
pub(crate) fn give_all(folder: &Path) -> io::Result<()> {
    give(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { give_all(&entry.path())? } else { give(&entry.path())? }
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
