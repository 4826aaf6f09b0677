//! Child processes of a test: copies of the test binary that play a role, and are killed or stopped.

pub mod child;
