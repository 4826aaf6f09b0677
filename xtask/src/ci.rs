//! `cargo xtask ci`: what has to pass before a merge. A failed part does not keep the others from running.

use dlock_testkit::servers::find_program;

use crate::parts::Parts;
use crate::sh::{Result, cargo, root, run};
use crate::sim::run_sim;
use crate::workspace::{FACADE, Workspace};
use crate::{package, test, tidy};

/// Everything.
pub(crate) fn all() -> Result {
    let mut parts = Parts::default();
    lints(&mut parts);
    let _ = parts.run("deny: licenses, bans, sources", || deny(&["licenses", "bans", "sources"]));
    // By itself, since it alone needs the network: it fetches the advisory database.
    let _ = parts.run("deny: advisories", || deny(&["advisories"]));
    let _ = parts.run("packages", package::packaged);
    let _ = parts.run("the simulation finds each planted fault", || run_sim(&["--hunt", "--seeds", "20000"]));
    let _ = test::add_to(&mut parts);
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
    // `--all-targets` leaves out targets with `test = false`.
    for target in ["interop", "browser"] {
        let _ =
            parts.run(&format!("clippy, {target}"), || clippy(&["--workspace", "--test", target, "--all-features"]));
    }
    let _ = parts.run("clippy, default features", || clippy(&["-p", "dlock-rs"]));
    let _ = parts.run("clippy, no features", || clippy(&["-p", "dlock-rs", "--no-default-features"]));
    if let Ok(workspace) = parts.run("the features", || Workspace::of(root())) {
        // Each must build and be clean by itself. `default` has its run above, and `full` is what all of them together are.
        for feature in workspace.features() {
            let _ = parts.run(&format!("clippy, {feature} alone"), || {
                clippy(&["-p", FACADE, "--no-default-features", "--features", feature])
            });
        }
    }
    let _ = parts.run("docs", || {
        let mut command = cargo(&["doc", "--no-deps", "--workspace", "--all-features"]);
        run(command.env("RUSTDOCFLAGS", "-D warnings"))
    });
}

/// Path dependencies are checked along with the package, under the same rules.
fn clippy(arguments: &[&str]) -> Result {
    run(cargo(&["clippy", "--quiet"]).args(arguments).args(["--", "-D", "warnings"]))
}

fn deny(checks: &[&str]) -> Result {
    if find_program("cargo-deny").is_none() {
        return Err("cargo-deny is not installed; run: cargo install cargo-deny --locked".into());
    }
    run(cargo(&["deny", "check"]).args(checks))
}

#[cfg(test)]
mod tests {
    /// So each build with the pinned toolchain shows that the lowest supported Rust is enough.
    #[test]
    fn the_lowest_rust_is_the_pinned_one() {
        let manifest = include_str!("../../Cargo.toml");
        let lines = manifest.lines().filter_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
        let lowest: Vec<_> = lines.collect();
        let [lowest] = lowest[..] else { panic!("{lowest:?}") };
        let pinned = include_str!("../../rust-toolchain.toml");
        assert!(pinned.contains(&format!("channel = \"{lowest}.0\"")), "{lowest} is not {pinned}");
    }
}
