//! Fenced writes to mysql.
