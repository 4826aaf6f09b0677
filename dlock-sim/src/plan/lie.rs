//! The lies that a store may tell.

/// A store that breaks a promise of the contract, as the liars of the conformance suite do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// None.
    #[default]
    Honest,
    /// A renewal creates the hold anew if the lock is free.
    RenewCreates,
    /// A renewal is written without a look at the owner.
    RenewTakesAll,
    /// A release is written without a look at the owner.
    ReleaseTakesAll,
    /// A release looks first and deletes some milliseconds later.
    ReleaseWithGap,
    /// A grant is written without a look at the holder, now and then.
    GrantTakesAll,
    /// A lease lasts three quarters of what is told.
    ShortLease,
    /// A renewal lasts three quarters of what is told.
    ShortRenewal,
    /// A request that arrives after its abandon takes the lock.
    LateGrant,
    /// The grant is said to begin when its answer comes.
    FromTheReply,
    /// A grant has the token of the one before.
    SameToken,
    /// An abandon changes nothing.
    IgnoresAbandon,
    /// A reader is let in beside a writer.
    ReaderBesideWriter,
    /// A permit's number is the number of holders.
    SlotByCount,
    /// Of several locks those that are free are taken, and the answer is that others hold them.
    HalfOfAll,
    /// A run of a period is started again.
    StartsAgain,
    /// A key is kept for half of its time.
    KeepsShort,
}

/// All of the lies.
pub const LIES: [Lie; 16] = [
    Lie::RenewCreates,
    Lie::RenewTakesAll,
    Lie::ReleaseTakesAll,
    Lie::ReleaseWithGap,
    Lie::GrantTakesAll,
    Lie::ShortLease,
    Lie::ShortRenewal,
    Lie::LateGrant,
    Lie::FromTheReply,
    Lie::SameToken,
    Lie::IgnoresAbandon,
    Lie::ReaderBesideWriter,
    Lie::SlotByCount,
    Lie::HalfOfAll,
    Lie::StartsAgain,
    Lie::KeepsShort,
];
