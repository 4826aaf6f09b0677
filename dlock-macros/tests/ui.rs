//! Uses that must not compile, and the texts of their errors.
//!
//! Here and not in the facade's package, because `trybuild` builds all dev-dependencies of the package it runs in, and
//! the facade's are every store's client.

#[test]
fn wrong_uses_do_not_compile_and_the_errors_are_the_pinned_ones() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
