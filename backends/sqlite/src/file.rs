//! The database file: its path, and the checks of its file system, owner and mode.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{Address, OptionRow, UrlBody, UrlForm};

use super::filesystem::not_local;

/// `sqlite://path[?network=allow][&shared=allow][&mode=rw]`.
pub(super) const FORM: UrlForm = UrlForm::new("a SQLite URL", "sqlite://path", &["sqlite"], UrlBody::File).options(&[
    OptionRow::one_of("network", &["allow"]),
    OptionRow::one_of("shared", &["allow"]),
    // As in sqlx, but that a missing file is made by default.
    OptionRow::one_of("mode", &["rwc", "rw"]),
]);

/// The file that a URL names.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    pub(super) path: PathBuf,
    /// `?network=allow`: it may lie on any file system.
    network_allowed: bool,
    /// `?shared=allow`: other users may own it or write it.
    shared_allowed: bool,
    /// `?mode=rw`: it is not made if it is missing.
    must_exist: bool,
    /// The names of the threads that were kept waiting for the disk.
    #[cfg(test)]
    pub(super) waited: std::sync::Mutex<std::collections::BTreeSet<String>>,
}

/// The identity of the file, independent of its name: device and inode number.
pub(super) type FileId = (u64, u64);

impl DatabaseFile {
    /// The file at this address.
    pub(super) fn of(address: &Address) -> Result<Self> {
        let path = address.path().first().map_or("", String::as_str);
        if path.is_empty() || path == ":memory:" {
            return Err(Error::config(
                "url",
                "SQLite needs a file: sqlite://locks.db. A database in memory is visible to one connection only and excludes nobody; use memory:// inside one process",
            ));
        }
        // SQLite reads names that begin with `file:` as URLs.
        let path = std::path::absolute(path)
            .map_err(|error| Error::config("url", "the path of the lock file has no absolute form").because(error))?;
        Ok(Self {
            path,
            network_allowed: address.option("network").is_some(),
            shared_allowed: address.option("shared").is_some(),
            must_exist: address.option("mode") == Some("rw"),
            #[cfg(test)]
            waited: std::sync::Mutex::default(),
        })
    }

    /// Checks the file, makes it if it is missing and may be made, and returns its identity.
    ///
    /// May block for as long as the disk hangs.
    pub(super) fn look(&self) -> Result<FileId> {
        #[cfg(test)]
        self.note_thread();
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if !folder.is_dir() {
            return Err(self.complain(ErrorKind::ConfigInvalid { field: "url".into() }, "its folder does not exist"));
        }
        if !self.network_allowed {
            self.check_file_system(folder)?;
        }
        // An existing file is never opened and closed here, because closing it would drop this process's locks on it.
        if !exists(&self.path) {
            if self.must_exist {
                let text = "it does not exist, and mode=rw does not make it. Check the path, or write mode=rwc";
                return Err(self.complain(ErrorKind::ConfigInvalid { field: "url".into() }, text));
            }
            self.create()?;
        }
        let found = std::fs::metadata(&self.path)
            .map_err(|error| self.complain(ErrorKind::PermissionDenied, "it cannot be reached").because(error))?;
        self.check_found(&found)?;
        if !self.shared_allowed {
            self.check_private(&found)?;
        }
        Ok(identity(&found))
    }

    /// May block for as long as the disk hangs.
    pub(super) fn identity(&self) -> io::Result<FileId> {
        #[cfg(test)]
        self.note_thread();
        std::fs::metadata(&self.path).map(|found| identity(&found))
    }

    #[cfg(test)]
    fn note_thread(&self) {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        self.waited.lock().unwrap().insert(name);
    }

    /// An error that names the file. A path is not secret.
    pub(super) fn complain(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, format!("the lock file {} cannot be used: {what}", self.path.display()))
    }

    /// Whether other users may own or write the file.
    #[cfg(target_os = "linux")]
    pub(super) fn may_be_shared(&self) -> bool {
        self.shared_allowed
    }

    fn check_file_system(&self, folder: &Path) -> Result<()> {
        let refused = |text: &str| self.complain(ErrorKind::Unsupported { need: "a local file system".into() }, text);
        match not_local(folder) {
            Ok(None) => Ok(()),
            Ok(Some(name)) => Err(refused(&format!(
                "it is on {name}, which is not known to be local. Several hosts that share a file do not exclude each other; if only one host uses it, add ?network=allow to the URL"
            ))),
            Err(error) => Err(refused(
                "the system does not say which file system it is on; if only one host uses it, add ?network=allow to the URL",
            )
            .because(error)),
        }
    }

    fn check_found(&self, found: &Metadata) -> Result<()> {
        if !found.is_file() {
            return Err(self.complain(ErrorKind::ConfigInvalid { field: "url".into() }, "it is not a plain file"));
        }
        if found.permissions().readonly() {
            return Err(self.complain(ErrorKind::PermissionDenied, "it is read-only, and locks are written into it"));
        }
        Ok(())
    }

    /// A user who may write the file may free every lock. A user who made the file, or a link to it, chose which file
    /// this is. The same is true for the two files beside it.
    #[cfg(unix)]
    fn check_private(&self, found: &Metadata) -> Result<()> {
        self.check_owner(found, "it")?;
        // The link itself, if it is one. Its mode says nothing.
        if let Ok(link) = std::fs::symlink_metadata(&self.path)
            && link.is_symlink()
            && !is_mine(&link)
        {
            return Err(self.shared("it is a link that another user made"));
        }
        for suffix in ["-wal", "-shm"] {
            let mut beside = self.path.clone().into_os_string();
            beside.push(suffix);
            match std::fs::symlink_metadata(&beside) {
                Ok(found) if found.is_symlink() => {
                    return Err(self.shared(&format!("its companion that ends in {suffix} is a link")));
                }
                Ok(found) => self.check_owner(&found, &format!("its companion that ends in {suffix}"))?,
                // Made later, by us.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// On other systems the rights of files work differently, and dlock does not check them.
    #[cfg(not(unix))]
    fn check_private(&self, _: &Metadata) -> Result<()> {
        Ok(())
    }

    #[cfg(unix)]
    fn check_owner(&self, found: &Metadata, what: &str) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        if !is_mine(found) {
            return Err(self.shared(&format!("{what} belongs to another user")));
        }
        if found.mode() & 0o022 != 0 {
            let text = format!("{what} may be written by other users (mode {:o})", found.mode() & 0o7777);
            return Err(self.shared(&text));
        }
        Ok(())
    }

    #[cfg(unix)]
    fn shared(&self, what: &str) -> Error {
        let help =
            "every user that may write the file can free every lock; if that is intended, add ?shared=allow to the URL";
        self.complain(ErrorKind::PermissionDenied, &format!("{what}, and {help}"))
    }

    fn create(&self) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // A user that may write the file may free every lock.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&self.path) {
            Ok(_) => Ok(()),
            // Another process has created it first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(self.complain(ErrorKind::PermissionDenied, "it cannot be created").because(error)),
        }
    }
}

/// Whether the path exists. A path that cannot be reached is an error, and is not created.
fn exists(path: &Path) -> bool {
    !std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(unix)]
fn is_mine(found: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(found) == rustix::process::geteuid().as_raw()
}

#[cfg(unix)]
pub(crate) fn identity(found: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

/// On other systems an open file cannot be replaced.
#[cfg(not(unix))]
pub(crate) fn identity(_: &Metadata) -> FileId {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use dlock_testkit::slips::assert_hidden;

    use super::*;

    fn read(url: &str) -> Result<DatabaseFile> {
        DatabaseFile::of(&Address::parse(url, &FORM)?)
    }

    #[test]
    fn a_url_names_a_file() {
        let parse = |url| {
            read(url).map(|database| {
                (database.path.display().to_string(), database.network_allowed, database.shared_allowed)
            })
        };
        assert_eq!(parse("sqlite:///var/a%20b.db").unwrap(), ("/var/a b.db".into(), false, false));
        assert!(parse("sqlite://locks.db?network=allow").unwrap().0.ends_with("/locks.db"));
        assert!(parse("sqlite://locks.db?network=allow").unwrap().1);
        let both = parse("sqlite:///a@b:c@d.db?shared=allow&network=allow").unwrap();
        assert_eq!(both, ("/a@b:c@d.db".into(), true, true));
        assert!(parse("sqlite://jobs@night.db").unwrap().0.ends_with("/jobs@night.db"));
        for bad in ["sqlite://", "sqlite://:memory:", "sqlite://a%2", "sqlite://a%00b", "sqlite://a?mode=ro"] {
            assert!(matches!(parse(bad).unwrap_err().kind(), ErrorKind::ConfigInvalid { .. }), "{bad}");
        }
    }

    #[test]
    fn a_file_is_made_unless_the_url_says_that_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let at = |mode: &str| read(&format!("sqlite://{}/locks.db{mode}", folder.path().display())).unwrap().look();
        let missing = at("?mode=rw").unwrap_err();
        assert!(matches!(missing.kind(), ErrorKind::ConfigInvalid { .. }), "{missing}");
        assert!(missing.to_string().contains("it does not exist"), "{missing}");
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
        let made = at("?mode=rwc").unwrap();
        assert_eq!([at("?mode=rw").unwrap(), at("").unwrap()], [made; 2]);
    }

    #[test]
    fn a_password_is_refused_and_never_echoed() {
        for url in [
            "sqlite://me:canary@locks.db",
            "sqlite://me:canary@host/locks.db",
            "sqlite://:canary@/locks.db",
            "sqlite://me:can/ary@host/locks.db",
            "sqlite://me:canary%2@host/locks.db",
            "sqlite://locks.db?password=canary",
        ] {
            let error = read(url).unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(!told.contains("canary") && !told.contains("ary@"), "{told}");
        }
    }

    #[test]
    fn no_slip_in_a_url_shows_its_password_in_an_error() {
        // A path is no secret, so only errors are looked at.
        assert_hidden(&["sqlite://me:{}@host/a.db", "sqlite:///a.db?network={}"], |url| read(url).map(|_| ()));
    }
}
