//! Temporary files of the tests in memory, so that a busy disk makes no test late.
//!
//! A server answers a commit when the disk has it. Beside programs that keep the disk busy, one such answer took up to half a
//! second, and the tests of ZooKeeper took 729 s instead of 140 s, with failures. The servers keep their defaults.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::sh::Result;

/// Linux' folder in memory, which every user may write.
const FOLDER: &str = "/dev/shm";

/// The memory that the files of one run need, and the programs beside them.
const ROOM: u64 = 8 << 30;

/// Starts this task again with its temporary files in memory. Returns if they stay where they are: where `TMPDIR` says, or on the
/// disk of a machine with too little memory.
pub(crate) fn use_memory() -> Result {
    let moves = moves_to(Path::new(FOLDER), env::var_os("TMPDIR").as_deref());
    if moves { start_again() } else { Ok(()) }
}

/// Whether the files move to this folder. `chosen` is somebody's choice.
fn moves_to(folder: &Path, chosen: Option<&OsStr>) -> bool {
    chosen.is_none() && has_room(folder)
}

/// The variable reaches every program of the run. A process cannot safely change its own variables.
#[cfg(unix)]
fn start_again() -> Result {
    use std::os::unix::process::CommandExt;

    let error =
        std::process::Command::new(env::current_exe()?).args(env::args_os().skip(1)).env("TMPDIR", FOLDER).exec();
    Err(format!("the task cannot be started again with TMPDIR={FOLDER}: {error}").into())
}

/// Whether the folder may have programs and has room, and so has the machine's memory.
fn has_room(folder: &Path) -> bool {
    let has_room = |memory: &str| available(memory).is_some_and(|bytes| bytes >= ROOM);
    let takes_files = statvfs(folder).is_ok_and(|folder| {
        !folder.f_flag.contains(StatVfsMountFlags::NOEXEC) && folder.f_bavail.saturating_mul(folder.f_frsize) >= ROOM
    });
    takes_files && std::fs::read_to_string("/proc/meminfo").is_ok_and(|memory| has_room(&memory))
}

/// The bytes that new programs may take, by the text of `/proc/meminfo`.
fn available(memory: &str) -> Option<u64> {
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read() {
        assert_eq!(available("MemTotal:  24 kB\nMemAvailable:   17 kB\n"), Some(17 << 10));
        assert_eq!(available("MemTotal:  24 kB\n"), None);
    }

    #[test]
    fn a_folder_that_somebody_chose_stays() {
        let memory = Path::new(FOLDER);
        assert!(!moves_to(memory, Some(OsStr::new("/var/tmp"))));
        assert_eq!(moves_to(memory, None), has_room(memory));
    }

    #[test]
    fn a_folder_without_room_is_not_taken() {
        assert!(!has_room(Path::new("/proc")));
        assert!(!has_room(Path::new("/nowhere")));
    }
}
