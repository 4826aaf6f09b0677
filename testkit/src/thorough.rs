//! Whether `cargo xtask test --all` runs the tests.

/// `--all` sets this variable.
const ALL: &str = "DLOCK_TEST_ALL";

/// Whether the tests also repeat proofs: over a further server or topology.
#[must_use]
pub fn is_thorough() -> bool {
    std::env::var_os(ALL).is_some()
}
