//! `cargo xtask ci`: what has to pass before a merge. A failed part does not keep the others from running.

use dlock_testkit::servers::find_program;

use crate::parts::Parts;
use crate::sh::{Result, cargo, read, run};
use crate::{test, tidy};

/// The features of the facade, each of which must build and be clean by itself.
const FEATURES: [&str; 9] =
    ["sqlite", "redis", "redis-tls", "redisson", "redlock", "mysql", "mysql-tls", "etcd", "uuid"];

/// `rust-version` in Cargo.toml.
const LOWEST_RUST: &str = "1.94";

/// Everything.
pub(crate) fn all() -> Result {
    let mut parts = Parts::default();
    lints(&mut parts);
    let _ = parts.run("deny: licenses, bans, sources", || deny(&["licenses", "bans", "sources"]));
    // By itself, since it alone needs the network: it fetches the advisory database.
    let _ = parts.run("deny: advisories", || deny(&["advisories"]));
    let _ = test::add_to(&mut parts, &[]);
    parts.finish()
}

/// All that needs no server and no network.
pub(crate) fn lint() -> Result {
    let mut parts = Parts::default();
    lints(&mut parts);
    parts.finish()
}

/// Outcomes are kept in `parts`.
fn lints(parts: &mut Parts) {
    let _ = parts.run("format", || run(&mut cargo(&["fmt", "--all", "--check"])));
    let _ = parts.run("tidy", tidy::run);
    let _ = parts.run("clippy, all features", || clippy(&["--workspace", "--all-targets", "--all-features"]));
    // A target with `test = false` is none of `--all-targets`.
    let _ = parts.run("clippy, interop", || clippy(&["--workspace", "--test", "interop", "--all-features"]));
    let _ = parts.run("clippy, default features", || clippy(&["-p", "dlock-rs"]));
    let _ = parts.run("clippy, no features", || clippy(&["-p", "dlock-rs", "--no-default-features"]));
    for feature in FEATURES {
        let _ = parts.run(&format!("clippy, {feature} alone"), || {
            clippy(&["-p", "dlock-rs", "--no-default-features", "--features", feature])
        });
    }
    let _ = parts.run("docs", || {
        let mut command = cargo(&["doc", "--no-deps", "--workspace", "--all-features"]);
        run(command.env("RUSTDOCFLAGS", "-D warnings"))
    });
    let _ = parts.run("lowest supported Rust", lowest_rust);
}

/// Path dependencies are checked along with the package, under the same rules.
fn clippy(arguments: &[&str]) -> Result {
    run(cargo(&["clippy", "--quiet"]).args(arguments).args(["--", "-D", "warnings"]))
}

fn lowest_rust() -> Result {
    let mut list = std::process::Command::new("rustup");
    let installed = read(list.args(["toolchain", "list"])).unwrap_or_default();
    if installed.lines().any(|line| line.starts_with(LOWEST_RUST)) {
        let toolchain = format!("+{LOWEST_RUST}");
        return run(&mut cargo(&[&toolchain, "check", "--workspace", "--all-targets", "--all-features"]));
    }
    eprintln!("  Rust {LOWEST_RUST} is not installed (rustup toolchain install {LOWEST_RUST}),");
    eprintln!("  so only clippy's incompatible_msrv looked, which knows the standard library but not the language.");
    Ok(())
}

fn deny(checks: &[&str]) -> Result {
    if find_program("cargo-deny").is_none() {
        return Err("cargo-deny is not installed; run: cargo install cargo-deny --locked".into());
    }
    run(cargo(&["deny", "check"]).args(checks))
}

#[cfg(test)]
mod tests {
    use super::{FEATURES, LOWEST_RUST};

    #[test]
    fn the_manifest_says_the_same() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("rust-version = \"{LOWEST_RUST}\"")));
        for feature in FEATURES {
            assert!(manifest.lines().any(|line| line.starts_with(&format!("{feature} = ["))), "{feature}");
        }
    }
}
