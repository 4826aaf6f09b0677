//! How far a hold has come, and the work of the body in its transaction.

/// How far a hold has come. It never goes back, so a later step wins over an earlier one that comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    Held,
    /// A look has found it ended.
    SeemsEnded,
    /// This process has begun to end it.
    Ending,
    /// It has ended for certain.
    Ended,
    /// It has ended, and the holder has heard of that. From then on nobody owns this hold.
    Told,
    /// It has ended, and its work is final.
    Committed,
}

/// The work of the body in the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The body has had no connection.
    None,
    /// The same, and the engine was told so.
    ToldNone,
    /// The body has had a connection after the engine was told that it had none.
    Late,
    /// The body has had a connection. The session was seen in the transaction since then.
    Seen,
    /// The body has had a connection since the session was last seen in the transaction, and may have ended it.
    Unseen,
}

impl Work {
    /// Whether the body has had a connection.
    pub(super) fn has_begun(self) -> bool {
        !matches!(self, Self::None | Self::ToldNone)
    }

    /// After the engine has asked whether there is any.
    pub(super) fn asked(self) -> Self {
        match self {
            Self::None | Self::ToldNone => Self::ToldNone,
            Self::Late => Self::Unseen,
            Self::Seen | Self::Unseen => self,
        }
    }

    /// After the body was given the connection.
    pub(super) fn lent(self) -> Self {
        match self {
            Self::ToldNone | Self::Late => Self::Late,
            Self::None | Self::Seen | Self::Unseen => Self::Unseen,
        }
    }

    /// After the session was seen in the transaction.
    pub(super) fn seen(self) -> Self {
        if self == Self::Unseen { Self::Seen } else { self }
    }

    /// Whether the body may have ended the transaction since its session was last seen in it.
    pub(super) fn may_have_ended(self) -> bool {
        matches!(self, Self::Late | Self::Unseen)
    }
}
