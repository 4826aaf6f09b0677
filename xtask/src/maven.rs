//! Files of Maven Central. Maven itself fetches them, so the machine's settings for it hold.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::servers::{Pin, Tree};

use crate::sh::{Result, read};
use crate::tree::put;

/// The goal of Maven that fetches a file without a project.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";

/// Fetches the pinned file, compares its digest, and unpacks the archive in it.
pub(crate) fn unpack(pin: &Pin, group: &str, sha256: &str, tree: &Tree) -> Result {
    let Pin { package, version, .. } = pin;
    eprintln!("  unpacking {package} {version} into {}", tree.root().display());
    let beside = tree.root().parent().ok_or("the tree has no folder around it")?;
    fs::create_dir_all(beside)?;
    let fetched = tempfile::tempdir_in(beside)?;
    let mut copy = Command::new("mvn");
    copy.args(["-q", "-B", COPY]).arg(format!("-Dartifact={group}:{package}:{version}:jar"));
    copy.arg(format!("-DoutputDirectory={}", fetched.path().display()));
    read(&mut copy)?;
    let jar = fetched.path().join(format!("{package}-{version}.jar"));
    check(&jar, sha256).map_err(|error| format!("{error}: change testkit/src/servers/pins.rs, line {}", pin.line))?;
    read(Command::new("unzip").arg("-q").arg(&jar).arg("*.txz").arg("-d").arg(fetched.path()))?;
    let archive = archive_in(fetched.path())?;
    let draft = tempfile::tempdir_in(beside)?;
    read(Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(draft.path()).arg("--no-same-owner"))?;
    // A server that refuses root reads it as another account.
    fs::set_permissions(draft.path(), Permissions::from_mode(0o755))?;
    put(draft, tree, version)
}

fn check(file: &Path, sha256: &str) -> Result {
    let digest = read(Command::new("sha256sum").arg(file))?;
    match digest.split_whitespace().next() {
        Some(digest) if digest == sha256 => Ok(()),
        digest => Err(format!("{} has the digest {}, not {sha256}", file.display(), digest.unwrap_or("none")).into()),
    }
}

fn archive_in(folder: &Path) -> Result<PathBuf> {
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "txz") {
            return Ok(path);
        }
    }
    Err(format!("{} has no archive in it", folder.display()).into())
}
