//! The files of the combiner.

#[path = "../../src/combine/batch.rs"]
pub(crate) mod batch;
#[path = "../../src/combine/combiner.rs"]
pub(crate) mod combiner;
#[expect(clippy::needless_borrows_for_generic_args, reason = "a digest is a `String` in the crate")]
#[path = "../../src/combine/releases.rs"]
pub(crate) mod releases;
