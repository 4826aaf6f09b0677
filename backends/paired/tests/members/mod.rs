//! The stores that the pairs of these tests are made of.

mod local;
mod server;

pub(crate) use local::{file, memory};
pub(crate) use server::{mysql, postgres, redis};
