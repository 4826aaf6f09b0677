//! What does not compile, and the texts of the errors.
//!
//! Here and not in the facade's package, because `trybuild` builds all dev-dependencies of the package it runs in, and
//! the facade's are every store's client.

#[test]
fn ui() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
