//! Requests of many tasks, sent together.
//!
//! Exists because a program that locks many keys at once would reach about half of its throughput without it: combined
//! requests gave 1.8 to 2.1 times as many cycles per second with 64 tasks and more (ADR 0014).

pub(crate) mod batch;
pub(crate) mod combiner;
pub(crate) mod releases;
