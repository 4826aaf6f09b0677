//! The Redis backend against real servers: what holds beyond the suite that all stores pass.

#[cfg(not(feature = "redisson"))]
compile_error!(
    "these tests need all features: `cargo xtask test redis`, or `cargo test -p dlock-redis --all-features`"
);

mod first_contact;
mod foreign;
mod modes;
mod names;
mod one_server;
mod rights;
mod topologies;
