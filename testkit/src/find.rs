//! Where the programs are: on the search path, or in a tree that `cargo xtask servers` unpacked.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Looks a program up on `PATH`, then where Debian keeps servers (an ordinary user's `PATH` lacks those).
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Where unpacked servers live: `$DLOCK_SERVERS`, else `dlock-servers` in the user's cache folder.
///
/// Not under `target`: a clean build must not cost another download.
pub fn cache_folder() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("DLOCK_SERVERS")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("dlock-servers")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/dlock-servers")))
        .unwrap_or_else(|| env::temp_dir().join("dlock-servers"))
}

/// Packages unpacked into a folder of their own, apart from the system.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree of this name, whether it is there or not.
    pub fn named(name: &str) -> Self {
        Self { root: cache_folder().join(name) }
    }

    /// The same, where each account of the machine can read it: a server that refuses root cannot look into root's own folder.
    pub fn for_all(name: &str) -> Self {
        let is_chosen = env::var_os("DLOCK_SERVERS").is_some_and(|folder| !folder.is_empty());
        let is_root = rustix::process::geteuid().is_root();
        let folder = if is_root && !is_chosen { PathBuf::from("/var/cache/dlock-servers") } else { cache_folder() };
        Self { root: folder.join(name) }
    }

    /// Its top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The version it was unpacked from; `None` if it is not there. The file is written last.
    pub fn version(&self) -> Option<String> {
        std::fs::read_to_string(self.version_file()).ok().map(|text| text.trim().to_owned())
    }

    /// The file that tells the version.
    pub fn version_file(&self) -> PathBuf {
        self.root.join("VERSION")
    }

    /// Runs a program with the tree's own loader and libraries, for trees newer than the system.
    ///
    /// Some programs look at their own name, which would be the loader's without `--argv0`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let (loader, libraries) = match env::consts::ARCH {
            "aarch64" => ("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
            _ => ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
        };
        let path = [libraries, "usr/lib", "usr/lib/mysql/private"]
            .map(|folder| self.root.join(folder).display().to_string())
            .join(":");
        let mut command = Command::new(self.root.join(loader));
        command.args(["--library-path", &path, "--argv0", &format!("/{program}")]).arg(self.root.join(program));
        command
    }
}

/// The one line that a test without its server fails with.
pub(crate) fn missing(server: &str) -> Error {
    Error::new(format!("{server} is not installed here; run: cargo xtask servers"))
}

/// Database servers refuse to run as root unless told that it is meant.
pub(crate) fn user_option() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}
