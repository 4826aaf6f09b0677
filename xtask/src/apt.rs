//! Debian packages: into the system, or unpacked into a folder of their own.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::servers::Pin;
use tempfile::TempDir;

use crate::sh::{Result, read};

/// Installs packages of the machine's own suite, without letting them start their services.
pub(crate) fn install(pins: &[&Pin]) -> Result {
    let _quiet = NoAutoStart::begin()?;
    let mut command = apt_get();
    command.args(["install", "-y", "--no-install-recommends"]);
    for pin in pins {
        let offered = offered_here(pin.package)?;
        command.arg(format!("{}={}", pin.package, pin.choose(&offered)?));
    }
    read(&mut command).map(drop)
}

/// Unpacks packages of the machine's own suite into a folder, with those they need that are not installed.
///
/// Versions are given as `NAME=VERSION`. Nothing is installed.
pub(crate) fn unpack(packages: &[String], into: &Path) -> Result {
    // Those that are installed already must be in the folder too, in this version.
    let mut command = apt_get();
    command.args(["-o", "Debug::NoLocking=1", "--reinstall", "--allow-downgrades"]);
    download(apt_get(), &listed(command, packages)?, into)
}

/// The versions of a package in the machine's own suite, newest first.
pub(crate) fn offered_here(package: &str) -> Result<Vec<String>> {
    offered(Command::new("apt-cache"), package)
}

/// Refreshes the machine's own lists.
pub(crate) fn update() -> Result {
    read(apt_get().arg("update")).map(drop)
}

/// Apt with lists of its own, for a suite that is not the machine's: neither its sources nor its state are touched.
///
/// Everything else of the machine's configuration stays in force, since it may be what makes the mirror reachable.
pub(crate) struct OtherSuite {
    folder: TempDir,
    name: String,
}

impl OtherSuite {
    pub(crate) fn open(suite: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("dlock-apt-").tempdir()?;
        fs::create_dir_all(folder.path().join("lists/partial"))?;
        fs::create_dir_all(folder.path().join("archives/partial"))?;
        // The dpkg status of a machine with no package at all.
        fs::write(folder.path().join("nothing"), "")?;
        let keyring = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
        let signed = if keyring.exists() { format!("[signed-by={}] ", keyring.display()) } else { String::new() };
        // This one is not whole: what it lacks is in the suite that it is an extension of.
        let suites = if suite == "experimental" { &["sid", suite][..] } else { &[suite] };
        let mirror = mirror()?;
        let lines: String = suites.iter().map(|suite| format!("deb {signed}{mirror} {suite} main\n")).collect();
        fs::write(folder.path().join("sources.list"), lines)?;
        let other = Self { folder, name: suite.to_owned() };
        read(other.command("apt-get").arg("update"))?;
        Ok(other)
    }

    /// The versions on offer, newest first.
    pub(crate) fn offered(&self, package: &str) -> Result<Vec<String>> {
        offered(self.command("apt-cache"), package)
    }

    /// The package and everything it needs, with their versions, computed as if nothing were installed.
    pub(crate) fn closure(&self, package: &str) -> Result<Vec<String>> {
        let nothing = format!("Dir::State::status={}", self.folder.path().join("nothing").display());
        let mut command = self.command("apt-get");
        command.args(["-o", &nothing, "-o", "Debug::NoLocking=1"]);
        listed(command, &[package.to_owned()])
    }

    /// Downloads and unpacks, without running anything of the packages.
    pub(crate) fn unpack(&self, packages: &[String], into: &Path) -> Result {
        download(self.command("apt-get"), packages, into)
    }

    fn command(&self, program: &str) -> Command {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            "Dir::Etc::preferences=-".to_owned(),
            "Dir::Etc::preferencesparts=-".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("")),
            format!("Dir::Cache::archives={}", at("archives")),
            format!("APT::Default-Release={}", self.name),
            // The folder is ours alone, so the sandbox's user could not write to it.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// Where this machine gets Debian from, told by apt itself: it reads both kinds of source files.
fn mirror() -> Result<String> {
    let format = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CREATED_BY)|$(REPO_URI)";
    let ask = || read(Command::new("apt-get").args(["indextargets", "--format", format]));
    let find = |targets: &str| {
        let target = targets.lines().find_map(|line| line.strip_prefix("Debian|Debian|main|Packages|"));
        target.map(str::to_owned)
    };
    if let Some(mirror) = find(&ask()?) {
        return Ok(mirror);
    }
    // It knows only what it has lists of.
    update()?;
    find(&ask()?).ok_or_else(|| "apt knows no Debian mirror here (apt-get indextargets shows none)".into())
}

/// The packages that an `apt-get` would install, with their versions.
fn listed(mut apt_get: Command, packages: &[String]) -> Result<Vec<String>> {
    apt_get.args(["install", "--print-uris", "-y", "--no-install-recommends"]).args(packages);
    let printed = read(&mut apt_get)?;
    // Lines are 'URL' NAME_VERSION_ARCH.deb SIZE HASH.
    let files = printed.lines().filter(|line| line.starts_with('\'')).filter_map(|line| line.split(' ').nth(1));
    let wanted = |file: &str| {
        let mut parts = file.split('_');
        Some(format!("{}={}", parts.next()?, parts.next()?.replace("%3a", ":")))
    };
    Ok(files.filter_map(wanted).collect())
}

/// Downloads and unpacks, without running anything of the packages.
fn download(mut apt_get: Command, packages: &[String], into: &Path) -> Result {
    let debs = tempfile::Builder::new().prefix("dlock-debs-").tempdir()?;
    read(apt_get.arg("download").args(packages).current_dir(debs.path()))?;
    for deb in fs::read_dir(debs.path())? {
        read(Command::new("dpkg-deb").arg("-x").arg(deb?.path()).arg(into))?;
    }
    Ok(())
}

fn offered(mut apt_cache: Command, package: &str) -> Result<Vec<String>> {
    // Lines are PACKAGE | VERSION | SOURCE, one package several times.
    let printed = read(apt_cache.args(["madison", package]))?;
    let mut versions: Vec<String> =
        printed.lines().filter_map(|line| Some(line.split('|').nth(1)?.trim().to_owned())).collect();
    versions.dedup();
    Ok(versions)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "Dpkg::Use-Pty=0"]);
    command
}

/// While it lives, packages do not start their services, which would take the usual ports.
struct NoAutoStart {
    made: Option<PathBuf>,
}

impl NoAutoStart {
    fn begin() -> Result<Self> {
        let path = PathBuf::from("/usr/sbin/policy-rc.d");
        match OpenOptions::new().write(true).create_new(true).mode(0o755).open(&path) {
            Ok(mut file) => {
                let guard = Self { made: Some(path) };
                file.write_all(b"#!/bin/sh\n# Temporary, by `cargo xtask servers`.\nexit 101\n")?;
                Ok(guard)
            }
            // The machine's own policy, which we leave as it is.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { made: None }),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for NoAutoStart {
    fn drop(&mut self) {
        if let Some(path) = &self.made
            && let Err(error) = fs::remove_file(path)
        {
            eprintln!("xtask: please remove {}: {error}", path.display());
        }
    }
}
