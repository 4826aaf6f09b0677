//! The index of the log: the file that ends in `-shm`, which all processes share. Two processes with two indexes see no
//! commits of each other, so both could take one lock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dlock_contract::{Error, Result};

use crate::file::{DatabaseFile, FileId, identity};

/// The index that the connections of this process use.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    identity: FileId,
}

impl Index {
    /// The index beside a file that a connection of this process has read already. May block for as long as the disk hangs.
    ///
    /// # Errors
    /// If the index is not the one that this process has in use: SQLite shares that among all connections of a process, and so
    /// does not open the present one until the last of them is closed.
    pub(crate) fn of(database: &DatabaseFile) -> Result<Self> {
        let lost = |error: io::Error| removed().because(error);
        let mut path = database.path.canonicalize().map_err(lost)?.into_os_string();
        path.push("-shm");
        let path = PathBuf::from(path);
        let identity = fs::metadata(&path).map(|found| identity(&found)).map_err(lost)?;
        // After the look at its identity: what is in use now was in use then.
        if is_in_use(&path) { Ok(Self { path, identity }) } else { Err(removed()) }
    }

    /// Whether it is still the one at its path. May block for as long as the disk hangs.
    pub(crate) fn is_in_place(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity)
    }
}

fn removed() -> Error {
    Error::outage(
        "the file that ends in -shm was removed or replaced while this process had the lock file open; dlock closes its \
         connections and opens the file again, but if anything else in this process has it open too, restart the process",
    )
}

/// Whether this process has mapped the file at this path, and not a deleted one.
#[cfg(target_os = "linux")]
fn is_in_use(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    // If the system does not report it, the check passes.
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let present = [b" ", path.as_os_str().as_bytes()].concat();
    let removed = [&present, &b" (deleted)"[..]].concat();
    let has = |end: &[u8]| maps.split(|byte| *byte == b'\n').any(|line| line.ends_with(end));
    has(&present) || !has(&removed)
}

/// Other systems do not report it.
#[cfg(not(target_os = "linux"))]
fn is_in_use(_: &Path) -> bool {
    true
}
