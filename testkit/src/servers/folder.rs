//! Makes a temporary folder for each instance, and removes folders whose owner was killed.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;
use std::{env, io};

use tempfile::TempDir;

use super::leftovers;

const PREFIX: &str = "dlock-test-";
const LOCK: &str = "owner.lock";

/// Removed when dropped. The lock on a file in it tells other processes that its owner lives.
pub(crate) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&env::temp_dir()));
        Self::inside(&env::temp_dir(), name)
    }

    fn inside(parent: &Path, name: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{name}-")).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what killed processes left behind.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
            leftovers::end_paused(&entry.path());
            leftovers::free_shared_memory(&entry.path());
            // Another process may be at it too, or it is another user's: either way not our concern.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path) -> bool {
    // A young folder may not have its lock yet.
    let young = fs::metadata(folder)
        .and_then(|folder| folder.modified())
        .is_ok_and(|at| at.elapsed().unwrap_or_default() < Duration::from_secs(10));
    !young && File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn only_old_folders_without_an_owner_are_abandoned() {
        // Another process may sweep the shared one.
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::inside(parent.path(), "unit").unwrap();
        let path = folder.path().to_owned();
        let grow_old = || File::open(&path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        grow_old();
        assert!(!is_abandoned(&path), "its owner lives");

        let Folder { folder, _lock } = folder;
        drop(_lock);
        // A child that another test is starting has a copy of the lock until its program begins.
        crate::block_until("the end of the lock", || is_abandoned(&path)).unwrap();
        let soon = SystemTime::now() + Duration::from_secs(60);
        File::open(&path).unwrap().set_modified(soon).unwrap();
        assert!(!is_abandoned(&path), "it may not have its lock yet");

        grow_old();
        sweep(parent.path());
        assert!(!path.exists());
        drop(folder);
    }
}
