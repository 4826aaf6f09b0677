//! Exit codes: one for each way in which a command can end, so that scripts can tell them apart.

use std::process::ExitCode;

use dlock::{Error, ErrorKind};

/// The code that the program ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    /// The question was answered with no: nobody holds the lock, or the hold is no longer there.
    pub(crate) const NO: Self = Self(1);
    /// As in `sysexits.h`.
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const OUTAGE: Self = Self(69);
    pub(crate) const INTERNAL: Self = Self(70);
    pub(crate) const BUSY: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const NO_PERMISSION: Self = Self(77);
    /// As of `timeout`.
    pub(crate) const TIMEOUT: Self = Self(124);
    /// As of the shells.
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// As of the shells, for a process that a signal has ended.
    pub(crate) const fn of_signal(number: i32) -> Self {
        Self(128_u8.wrapping_add(number as u8))
    }

    pub(crate) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::WaitTimeout | ErrorKind::AlreadyRun | ErrorKind::QueueFull { .. } => {
                Self::BUSY
            }
            ErrorKind::Outage | ErrorKind::NotPrimary => Self::OUTAGE,
            ErrorKind::Lost(_) => Self::LOST,
            ErrorKind::BodyTimeout => Self::TIMEOUT,
            ErrorKind::PermissionDenied => Self::NO_PERMISSION,
            ErrorKind::ConfigInvalid { .. }
            | ErrorKind::TtlOutOfRange { .. }
            | ErrorKind::KeyTooLong { .. }
            | ErrorKind::Unsupported { .. }
            | ErrorKind::BackendNotRegistered { .. } => Self::USAGE,
            _ => Self::INTERNAL,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// The end of a command that could not do its work: the code, and what is said on standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    text: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::USAGE, text)
    }

    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn and(mut self, text: &str) -> Self {
        self.text += text;
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Exit::of(&error), error.to_string())
    }
}
