//! `cargo xtask portable`: checks the code for systems that no test runs on, and with the oldest Rust that a crate claims.
//! Nothing is linked or run.
//!
//! The compilers are Debian's, since they come with the sources of the standard library and are there in two versions.

use std::env::{self, consts::ARCH};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use dlock_testkit::servers::{Tree, cache_folder};

use crate::apt;
use crate::parts::Parts;
use crate::sh::{Result, cargo, read, run};
use crate::tree::put;
use crate::workspace::{FACADE, Workspace};

/// A compiler of Debian's, unpacked beside the servers.
struct Toolchain {
    tree: &'static str,
    /// Its version starts with this.
    version: &'static str,
    /// All of this version. Apt would choose the newest standard library if it were not named.
    packages: &'static [&'static str],
}

const OLDEST: Toolchain =
    Toolchain { tree: "rust-1.85", version: "1.85.", packages: &["rustc-web", "cargo-web", "libstd-rust-web-dev"] };

/// With the sources of the standard library, which is built for each target.
const LATEST: Toolchain = Toolchain {
    tree: "rust-1.96",
    version: "1.96.",
    packages: &["rustc-web", "cargo-web", "libstd-rust-web-dev", "rust-web-src"],
};

/// The crates whose `rust-version` is that of [`OLDEST`].
pub(crate) const OLD_RUST: [&str; 3] = ["dlock-contract", "dlock-store", "dlock-conformance"];

const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

pub(crate) fn run_portable() -> Result {
    let mut parts = Parts::default();
    // `finish` reports the parts that failed.
    let _ = parts.run("Rust 1.85", || OLDEST.unpack()).and_then(|()| {
        let packages = OLD_RUST.iter().flat_map(|package| ["-p", package]);
        parts.run("check with Rust 1.85", || run(OLDEST.check().args(packages)))
    });
    let _ = parts.run("Rust 1.96", || LATEST.unpack()).map(|()| {
        for target in TARGETS {
            let _ = parts.run(&format!("check for {target}"), || run(&mut check_for(target)?));
        }
    });
    parts.finish()
}

fn check_for(target: &str) -> Result<Command> {
    let workspace = Workspace::of(crate::sh::root())?;
    let mut features = Vec::new();
    for feature in workspace.features() {
        if !compiles_c(feature, Some(target))? {
            features.push(feature);
        }
    }
    eprintln!("  {}", features.join(", "));
    let mut command = LATEST.check();
    command.args(["-Z", "build-std=std,panic_abort", "--target", target]);
    command.args(["-p", FACADE, "--no-default-features", "--features", &features.join(",")]);
    // Allows `-Z` outside of nightly.
    command.env("RUSTC_BOOTSTRAP", "1");
    Ok(command)
}

/// Whether a feature alone needs a C compiler for the target, or else for this machine: SQLite, and all that has TLS. It
/// cannot be checked without one.
fn compiles_c(feature: &str, target: Option<&str>) -> Result<bool> {
    let mut tree = cargo(&["tree", "--locked", "--package", FACADE, "--no-default-features", "--features", feature]);
    tree.args(["--edges", "normal,build", "--prefix", "none"]);
    tree.args(target.into_iter().flat_map(|target| ["--target", target]));
    Ok(read(&mut tree)?.lines().any(|package| ["cc ", "cmake "].iter().any(|builder| package.starts_with(builder))))
}

impl Toolchain {
    /// Downloads and unpacks it, unless it is there.
    fn unpack(&self) -> Result {
        let tree = self.tree();
        let mut version = tree.version();
        if version.as_ref().is_none_or(|version| !version.starts_with(self.version)) {
            let found = self.find()?;
            eprintln!("  unpacking {} into {}", self.packages.join(", "), tree.root().display());
            fs::create_dir_all(cache_folder())?;
            let draft = tempfile::tempdir_in(cache_folder())?;
            let packages: Vec<_> = self.packages.iter().map(|package| format!("{package}={found}")).collect();
            apt::unpack(&packages, draft.path())?;
            put(draft, &tree, &found)?;
            version = Some(found);
        }
        eprintln!("  {:<18} {}", self.tree, version.unwrap_or_default());
        Ok(())
    }

    fn find(&self) -> Result<String> {
        let [package, ..] = self.packages else { return Err("no package is named".into()) };
        let chosen = |offered: &[String]| offered.iter().find(|version| version.starts_with(self.version)).cloned();
        if let Some(version) = chosen(&apt::offered_here(package)?) {
            return Ok(version);
        }
        // The lists may be missing or old.
        apt::update()?;
        let offered = apt::offered_here(package)?;
        chosen(&offered).ok_or_else(|| {
            format!("apt offers no {package} {}* here (Debian 12 does): {}", self.version, offered.join(", ")).into()
        })
    }

    fn tree(&self) -> Tree {
        Tree::named(self.tree)
    }

    /// `cargo check`, with this compiler.
    fn check(&self) -> Command {
        let tree = self.tree();
        let at = |folder: &str| tree.root().join(folder);
        let mut command = Command::new(at("usr/bin/cargo"));
        command.args(["check", "--locked"]);
        command.env("RUSTC", at("usr/bin/rustc"));
        // Its libraries are not among the system's.
        let libraries = ["usr/lib", "lib"].map(|folder| at(&format!("{folder}/{ARCH}-linux-gnu")));
        command.env("LD_LIBRARY_PATH", joined(libraries, "LD_LIBRARY_PATH"));
        // Each compiler has its own folder, so neither replaces the builds of the other and a second run is short.
        command.env("CARGO_TARGET_DIR", crate::sh::root().join("target/portable").join(self.tree));
        command
    }
}

/// These folders, before those that the variable has.
fn joined(folders: [PathBuf; 2], variable: &str) -> OsString {
    let present = env::var_os(variable).unwrap_or_default();
    let all = folders.into_iter().chain(env::split_paths(&present));
    // It fails for a folder with a colon in its name, which the loader could not read either.
    env::join_paths(all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{OLD_RUST, OLDEST, compiles_c};

    #[test]
    fn features_that_compile_c_are_told_from_the_others() {
        let compiling = ["sqlite", "redis-tls", "zookeeper-tls"].map(|feature| compiles_c(feature, None).unwrap());
        assert_eq!(compiling, [true; 3]);
        let others = ["redis", "mysql", "zookeeper-sasl"].map(|feature| compiles_c(feature, None).unwrap());
        assert_eq!(others, [false; 3]);
    }

    #[test]
    fn a_lower_rust_is_claimed_only_where_it_is_checked() {
        let root = crate::sh::root();
        let files =
            crate::sh::read(std::process::Command::new("git").args(["ls-files", "*Cargo.toml"]).current_dir(root));
        let mut claimed = Vec::new();
        for file in files.unwrap().lines().filter(|file| *file != "Cargo.toml") {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let Some(claim) = text.lines().find_map(|line| line.strip_prefix("rust-version = ")) else { continue };
            assert_eq!(format!("{}.", claim.trim_matches('"')), OLDEST.version, "{file}");
            claimed.push(file.trim_end_matches("/Cargo.toml").to_owned());
        }
        claimed.sort_unstable();
        let mut checked = OLD_RUST;
        checked.sort_unstable();
        assert_eq!(claimed, checked);
    }
}
