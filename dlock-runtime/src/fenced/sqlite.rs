//! Fenced writes to sqlite.
