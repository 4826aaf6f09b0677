//! The lock's mode: one holder, many readers, or a number of holders at a time.

use std::num::NonZeroU32;

/// The lock's mode: one holder, many readers, or up to N holders at a time.
///
/// Locks of different families do not mix under one key: `Exclusive`, `Read` with `Write`, and `Permits` of one number.
/// A caller with another family than the one in use gets [`ErrorKind::KeyConflict`](crate::ErrorKind::KeyConflict).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One holder, alone.
    #[default]
    Exclusive,
    /// Beside other readers, never beside a writer.
    Read,
    /// Alone; readers that come while it waits wait behind it.
    Write,
    /// At most this many holders, each with its own [slot](crate::Hold::slot).
    Permits(NonZeroU32),
}

impl Mode {
    /// At most `limit` holders. Zero counts as one.
    #[doc(hidden)]
    #[must_use]
    pub const fn permits(limit: u32) -> Self {
        Self::Permits(NonZeroU32::MIN.saturating_add(limit.saturating_sub(1)))
    }

    /// The mode in one word: `exclusive`, `read`, `write` or `permits`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permits(_) => "permits",
        }
    }

    /// Whether several holders may have the lock at a time.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Read | Self::Permits(_))
    }

    /// Whether both modes may be used under one key.
    #[must_use]
    pub const fn mixes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, Self::Exclusive) | (Self::Read | Self::Write, Self::Read | Self::Write) => true,
            (Self::Permits(one), Self::Permits(other)) => one.get() == other.get(),
            _ => false,
        }
    }

    /// Whether a hold of this mode gives all that `inner` would.
    #[doc(hidden)]
    #[must_use]
    pub fn covers(self, inner: Self) -> bool {
        self == inner || (self == Self::Write && inner == Self::Read)
    }
}
