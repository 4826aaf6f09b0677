//! Where the file is, and whether it may be there.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::percent;

/// The file that a URL names.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    network_allowed: bool,
}

/// Which file it is, whatever its name: device and number.
pub(super) type Identity = (u64, u64);

impl Place {
    /// Reads `sqlite://path[?network=allow]`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == ":memory:" {
            return Err(Error::config(
                "url",
                "SQLite needs a file: sqlite://locks.db. A database in memory is seen by one connection only and excludes nobody; use memory:// inside one process",
            ));
        }
        let path = percent::decode(path)
            .filter(|path| !path.contains('\0'))
            .ok_or_else(|| Error::config("url", "the path has a `%` that is not followed by two hexadecimal digits"))?;
        let network_allowed = match query {
            "" => false,
            "network=allow" => true,
            _ => return Err(Error::config("url", "the only parameter of a sqlite:// URL is network=allow")),
        };
        // SQLite takes names that begin with `file:` for URLs of its own.
        let path = std::path::absolute(path)
            .map_err(|error| Error::config("url", "the path of the lock file has no absolute form").because(error))?;
        Ok(Self { path, network_allowed })
    }

    /// Makes sure that there is a file that may be used, and makes it if there is none.
    pub(super) fn check(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if !folder.is_dir() {
            return Err(self.complain(ErrorKind::ConfigInvalid { field: "url".into() }, "its folder does not exist"));
        }
        if !self.network_allowed
            && let Some(name) = network(folder)
        {
            let need = "a local filesystem".into();
            let text = format!(
                "it lies on {name}, whose file locks cannot be relied on between hosts; with ?network=allow you take that on yourself"
            );
            return Err(self.complain(ErrorKind::Unsupported { need }, &text));
        }
        // Never opened and closed here where it exists: that would drop the locks that this process has on it.
        match std::fs::metadata(&self.path) {
            Ok(found) => self.check_found(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(),
            Err(error) => Err(self.complain(ErrorKind::PermissionDenied, "it cannot be reached").because(error)),
        }
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        std::fs::metadata(&self.path).map(|found| identity(&found))
    }

    /// An error that says which file. A path is no secret.
    pub(super) fn complain(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, format!("the lock file {} cannot be used: {what}", self.path.display()))
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

    fn create(&self) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // Who may write it may free every lock.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&self.path) {
            Ok(_) => Ok(()),
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(self.complain(ErrorKind::PermissionDenied, "it cannot be created").because(error)),
        }
    }
}

#[cfg(unix)]
fn identity(found: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

/// Elsewhere an open file cannot be replaced.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

/// The name of the network filesystem that the folder is on; `None` on a local one, or where it cannot be told.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn network(folder: &Path) -> Option<&'static str> {
    let kind = u64::try_from(rustix::fs::statfs(folder).ok()?.f_type).ok()? & 0xffff_ffff;
    network_name(kind)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn network(_: &Path) -> Option<&'static str> {
    None
}

/// The numbers are those of the kernel's `magic.h`. One that the kernel shares among all user-space filesystems is
/// refused as a whole, since folders of virtual machines and of remote hosts come with it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn network_name(kind: u64) -> Option<&'static str> {
    Some(match kind {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p, a folder of another host",
        0x6573_5546 => "FUSE, often a folder of another host",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x564c => "NCP",
        0x786f_4256 => "a folder shared with a virtual machine",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file() {
        let parse = |url| Place::parse(url).map(|place| (place.path.display().to_string(), place.network_allowed));
        assert_eq!(parse("sqlite:///var/a%20b.db").unwrap(), ("/var/a b.db".into(), false));
        assert!(parse("sqlite://locks.db?network=allow").unwrap().0.ends_with("/locks.db"));
        assert!(parse("sqlite://locks.db?network=allow").unwrap().1);
        for bad in ["sqlite://", "sqlite://:memory:", "sqlite://a%2", "sqlite://a%00b", "sqlite://a?mode=ro"] {
            assert!(matches!(parse(bad).unwrap_err().kind(), ErrorKind::ConfigInvalid { .. }), "{bad}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_filesystems_are_known_by_number() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xef53), None);
        // `/proc` is a filesystem that is there and local.
        assert_eq!(network(Path::new("/proc")), None);
    }
}
