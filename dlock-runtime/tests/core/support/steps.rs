//! The requests of a store, and the faults that a test may order for each of their calls.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Acquire,
    /// The word that others wait for a key.
    Expects,
    Together,
    Renew,
    Release,
    /// Making the body's work final.
    Settle,
    /// A release that asks for the next one too; its step is that of a release.
    Carry,
    Reserve,
    Abandon,
    Look,
    /// The look for the record of a broken hold.
    Record,
    Ready,
    Close,
}

/// The fault of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Pass,
    /// Fails, and a retry can help.
    Fail,
    /// Fails, and says after which time it will grant locks again.
    GrantsAfter(Duration),
    /// Fails before anything has left.
    NeverSent,
    /// Fails for good.
    Refuse,
    /// Refused, for as long as the server is read-only.
    ReadOnly,
    /// Refused, until the server's tokens have passed those that were seen.
    Regressed,
    /// Refused, while others use the key in another lock mode.
    Mixed,
    /// Refused with a code that is known not to be worth a retry.
    Unknown,
    /// Fails for good, because of the ttl.
    RefuseTtl,
    /// Nothing is done and no answer comes.
    Hang,
    /// Of a release or an abandon: no answer comes, and it is done when the test [delivers](super::Faulty::deliver) it.
    Stall,
    /// It is done, but the answer is lost.
    LostReply,
    /// It is done, and the answer comes so much later.
    Late(Duration),
    /// Panics before it gives a future.
    Panic,
    /// Contended, with a signal that fails at once.
    BrokenSignal,
    /// Contended, with a signal that fails for good.
    RefusedSignal,
    /// Contended, with a signal that never comes. The test counts those that are [alive](super::Faulty::silent_signals).
    SilentSignal,
    /// Contended, with a signal that tells a caller with enclosing holds to give way.
    GiveWay,
    /// It is granted or renewed for so long only, as a pushed grant is.
    Short(Duration),
    /// Ready, with a finding that makes a promise smaller.
    Finding,
    /// It is done, and said to have begun so long ago. Of a look: each lease has so much less time left.
    Stale(Duration),
    /// Of several locks in one request all are granted or renewed, and one answer fewer comes back.
    Fewer,
}
