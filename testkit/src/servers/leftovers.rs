//! Leftovers of a killed PostgreSQL outside its folder: paused processes and shared memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::children::{is_stopped, signal_all, wait_until_gone};

/// Ends what was paused when the owner of the folder was killed: it did not notice that its server is gone.
pub(super) fn end_paused(folder: &Path) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let within = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|at| at.starts_with(folder));
    let paused: Vec<u32> = numbers.filter(within).filter(|pid| is_stopped(*pid)).collect();
    signal_all(&paused, Signal::KILL);
    wait_until_gone(&paused);
}

/// Frees the shared memory by which a server finds out whether an older one still uses its data. It is small, but the
/// kernel has room for 4096 such pieces alone.
pub(super) fn free_shared_memory(folder: &Path) {
    let Ok(text) = fs::read_to_string(folder.join("data/postmaster.pid")) else { return };
    // The seventh line has the key and the number.
    let words: Vec<_> = text.lines().nth(6).unwrap_or_default().split_whitespace().collect();
    let [key, id] = words[..] else { return };
    let key = key.parse().map(|key: u32| (key as i32).to_string()).unwrap_or_default();
    // After a restart of the machine the number may be another program's.
    let pieces = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let is_ours = pieces.lines().any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        matches!(columns[..], [its_key, its_id, _, _, _, _, "0", ..] if its_key == key && its_id == id)
    });
    if is_ours {
        // Without `ipcrm` it stays.
        let _ = Command::new("ipcrm").args(["-m", id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
