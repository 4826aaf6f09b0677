//! The page over real stores: what it shows, what it lets nobody do, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod activity;
mod breaking;
mod ends;
mod live;
mod locks;
mod page;
mod sections;
