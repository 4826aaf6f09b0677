//! SQLite's errors, as errors of the contract.

use dlock_contract::{Error, ErrorKind};

/// Turns SQLite's errors into ours. Their texts have no secrets: a file has no password, and values are never in the
/// text.
pub(crate) fn fault(error: sqlx::Error) -> Error {
    let mapped = match primary_code(&error) {
        Some(19) if is_moved(&error) => moved(),
        Some(5 | 6) => Error::outage("the database file is busy: another process kept it locked for too long"),
        Some(8 | 3 | 23) => Error::new(ErrorKind::PermissionDenied, "the database file cannot be written"),
        Some(10) => Error::outage("reading or writing the database file failed").with_retryable(false),
        Some(11) => Error::new(ErrorKind::CorruptState, "the database file is damaged"),
        Some(13) => Error::outage("the disk of the database file is full"),
        Some(14) => Error::new(
            ErrorKind::PermissionDenied,
            "the database file, or the two files beside it (-wal and -shm), cannot be opened; check the rights of the folder",
        ),
        Some(26) => Error::new(ErrorKind::SchemaMismatch, "the file is not an SQLite database"),
        // One of dlock's own checks. Only the fencing counter has one.
        Some(19) => Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up"),
        // No such table, no such column.
        Some(1) => Error::new(ErrorKind::SchemaMismatch, "the database has other tables than dlock expects"),
        Some(_) => Error::outage("the database file cannot be used").with_retryable(false),
        None if is_broken(&error) => Error::outage("the connection to the database file failed"),
        None => Error::new(ErrorKind::Protocol, "the database file gave an invalid answer"),
    };
    mapped.because(error)
}

pub(super) fn corrupt(what: &'static str) -> Error {
    Error::new(ErrorKind::CorruptState, format!("the lock file contradicts itself: {what}"))
}

/// Whether the connection is broken.
pub(super) fn is_broken(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::WorkerCrashed | sqlx::Error::Io(_))
        || matches!(primary_code(error), Some(10 | 11 | 26))
        || is_moved(error)
}

/// A process that opens the path now may get another file, and locks in two files exclude nobody.
pub(super) fn moved() -> Error {
    Error::outage(
        "the lock file, or the one beside it that ends in -shm, was removed or replaced while it was open; dlock opens what \
         is there now",
    )
}

/// Whether a commit was refused because the path names another file by now. See `schema::commit_only_at`.
fn is_moved(error: &sqlx::Error) -> bool {
    code(error) == Some(531)
}

/// Whether the counter has reached its bound, which is the only check among the tables.
pub(super) fn is_bound_reached(error: &sqlx::Error) -> bool {
    code(error) == Some(275)
}

/// The result code without its extension.
pub(super) fn primary_code(error: &sqlx::Error) -> Option<i32> {
    Some(code(error)? & 0xff)
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}
