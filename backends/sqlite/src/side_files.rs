//! The side files: a release opens one, and the kernel notifies every process that watches it.
//!
//! The folder `<database>-dlock-wake` has up to 64 empty files, and as many for turns, and each key belongs to one of them. A waiter makes and
//! watches the file of its key. A release only opens that file. Opening writes nothing, and a file that was never made
//! has no waiter.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::file::DatabaseFile;

/// More files wake fewer waiters of other keys. A process watches only the files of keys that it waits for.
const FILE_COUNT: u64 = 64;

/// The number of a side file.
pub(crate) type Number = u8;

/// The side files of one database.
#[derive(Debug)]
pub(crate) struct SideFiles {
    database: Arc<DatabaseFile>,
    /// Found at first use, on a thread that may wait for the disk.
    folder: OnceLock<PathBuf>,
}

/// The side file of a key. Every process must compute the same number, also one that runs another release of dlock.
pub(crate) fn number_of(key: &str) -> Number {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // Without this, keys that differ in their last byte would share a file.
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((mixed >> 33) % FILE_COUNT) as Number
}

fn name_of(number: Number) -> String {
    format!("{number:02x}")
}

/// The file that waiting processes lock. It is not the one that they watch, because opening that one wakes them.
fn turns_of(number: Number) -> String {
    format!("{number:02x}-turns")
}

impl SideFiles {
    pub(crate) fn new(database: Arc<DatabaseFile>) -> Self {
        Self { database, folder: OnceLock::new() }
    }

    /// Opens the side file of a key, which wakes its waiters. Follows no link, so that nothing else is opened. May block
    /// for as long as the disk hangs.
    pub(crate) fn open(&self, key: &str) {
        // There is none if nobody has ever waited. All other failures leave the waiters to their poll.
        drop(self.opened(&name_of(number_of(key))));
    }

    /// Shows other processes that this one waits for the key, as long as the descriptor lives.
    pub(crate) fn wait_for(&self, key: &str) -> Option<OwnedFd> {
        let file = self.opened(&turns_of(number_of(key)));
        file.filter(|file| flock(file, FlockOperation::NonBlockingLockShared).is_ok())
    }

    /// Whether a process shows that it waits for the key, or for another key with this side file.
    pub(crate) fn is_waited_for(&self, key: &str) -> bool {
        let locked = |file: OwnedFd| flock(file, FlockOperation::NonBlockingLockExclusive);
        self.opened(&turns_of(number_of(key))).is_some_and(|file| locked(file) == Err(Errno::WOULDBLOCK))
    }

    fn opened(&self, name: &str) -> Option<OwnedFd> {
        let folder = openat(CWD, self.folder().ok()?, OFlags::PATH | OFlags::DIRECTORY | UNFOLLOWED, Mode::empty());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | UNFOLLOWED;
        openat(folder.ok()?, name, flags, Mode::empty()).ok()
    }

    /// Makes sure that the side file is there and may be watched. May block for as long as the disk hangs.
    pub(crate) fn prepare(&self, number: Number) -> io::Result<PathBuf> {
        let database = std::fs::metadata(&self.database.path)?;
        let folder = self.folder()?;
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => self.share(folder, &database, 0o7)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let found = folder.symlink_metadata()?;
        self.check(&found, found.is_dir(), folder)?;
        // Without it, the process has no turns.
        let _ = self.prepare_file(&database, &folder.join(turns_of(number)));
        let path = folder.join(name_of(number));
        self.prepare_file(&database, &path).map(|()| path)
    }

    fn prepare_file(&self, database: &Metadata, path: &Path) -> io::Result<()> {
        // Opening an existing one would wake its waiters.
        if path.symlink_metadata().is_err() {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
                Ok(_) => self.share(path, database, 0o6)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        let found = path.symlink_metadata()?;
        self.check(&found, found.is_file(), path)
    }

    /// Beside the file itself, wherever a link to it lies: all processes must find the same folder.
    fn folder(&self) -> io::Result<&Path> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder);
        }
        let mut folder = self.database.path.canonicalize()?.into_os_string();
        folder.push("-dlock-wake");
        Ok(self.folder.get_or_init(|| folder.into()))
    }

    /// Gives what was just made to the users that may write the database, and to nobody else.
    fn share(&self, made: &Path, database: &Metadata, bits: u32) -> io::Result<()> {
        let opened = File::options().read(true).custom_flags(libc_no_follow()).open(made)?;
        let (owner, group) = (Uid::from_raw(database.uid()), Gid::from_raw(database.gid()));
        let found = opened.metadata()?;
        if (found.uid(), found.gid()) != (database.uid(), database.gid()) {
            // Only root may give files away. A user that is not in the group leaves the others to their poll.
            let _ = rustix::fs::fchown(&opened, Some(owner), Some(group))
                .or_else(|_| rustix::fs::fchown(&opened, None, Some(group)));
        }
        let writable = |class: u32| if database.mode() & (0o2 << class) != 0 { bits << class } else { 0 };
        opened.set_permissions(Permissions::from_mode(bits << 6 | writable(3) | writable(0)))
    }

    /// The rules are those of the database file, but a breach here costs only the wake-up.
    fn check(&self, found: &Metadata, right_kind: bool, path: &Path) -> io::Result<()> {
        let what = if !right_kind {
            "is not what dlock made there"
        } else if !self.database.may_be_shared() && found.uid() != rustix::process::geteuid().as_raw() {
            "belongs to another user"
        } else if !self.database.may_be_shared() && found.mode() & 0o022 != 0 {
            "may be written by other users"
        } else {
            return Ok(());
        };
        Err(io::Error::other(format!("{} {what}; remove it", path.display())))
    }
}

/// A link is an error, and the descriptor is not inherited.
const UNFOLLOWED: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

fn libc_no_follow() -> i32 {
    OFlags::NOFOLLOW.bits() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_key_never_changes() {
        let numbers: Vec<_> = ["dl1:test:a", "dl1:test:b", "dl1:shop:stock:<42>"].map(number_of).into();
        assert_eq!(numbers, [25, 36, 13]);
    }

    #[test]
    fn keys_spread_over_the_files() {
        let mut seen = [0_u32; FILE_COUNT as usize];
        (0..6400).for_each(|id| seen[usize::from(number_of(&format!("dl1:shop:stock:<{id}>")))] += 1);
        assert!(seen.iter().all(|keys| (50..150).contains(keys)), "{seen:?}");
    }
}
