//! The files of the combiner.

#[path = "../../src/combine/batch.rs"]
pub(crate) mod batch;
#[path = "../../src/combine/combiner.rs"]
pub(crate) mod combiner;
#[path = "../../src/combine/releases.rs"]
pub(crate) mod releases;
