//! The lies, the setup of the reference store in which each is told, and exactly the cases that catch it.

use std::time::Duration;

use dlock::{Expiry, WakeStyle};

use crate::server::Setup;

const SHORT_POLL: WakeStyle = WakeStyle::Poll { from: Duration::from_millis(5), to: Duration::from_millis(50) };

/// Together they make every case applicable.
pub(crate) const SETUPS: [Setup; 7] = [POLL, LINE, PUSH, SESSION, KINDS, POLLED_KINDS, PUSHED_KINDS];
const POLL: Setup =
    Setup { name: "lease, poll", expiry: Expiry::Lease, wake: SHORT_POLL, grouped: false, kinds: false };
const LINE: Setup = Setup { name: "lease, hint", wake: WakeStyle::Hint, ..POLL };
const PUSH: Setup = Setup { name: "lease, grant", wake: WakeStyle::Grant, grouped: true, ..POLL };
const SESSION: Setup = Setup { name: "session", expiry: Expiry::Session { told: Duration::from_millis(100) }, ..POLL };
const KINDS: Setup = Setup { name: "kinds, hint", kinds: true, ..LINE };
const POLLED_KINDS: Setup = Setup { name: "kinds, poll", kinds: true, ..POLL };
const PUSHED_KINDS: Setup = Setup { name: "kinds, grant", kinds: true, ..PUSH };

macro_rules! lies {
    ($($lie:ident $setup:ident [$($case:literal),+ $(,)?])*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Lie {
            $($lie),*
        }

        pub(crate) const LIES: &[(Lie, Setup, &[&str])] = &[$((Lie::$lie, $setup, &[$($case),+])),*];
    };
}

lies! {
    TwoSteps POLL ["owners that come all at once are never inside together"]
    OwnerIsNote POLL ["a second owner is refused, from wherever it asks"]
    CountsUp POLL ["the same owner may ask again, and one release is enough"]
    ArmsNothing POLL ["a repeated ask arms the lease anew"]
    FreesSilently POLL ["a release frees the lock and says so"]
    LateReleaseIsFine POLL ["a late release is told NotOwner and leaves the next holder alone"]
    ComparesShort POLL ["a stranger whose owner differs in one byte changes nothing"]
    RenewsNothing POLL ["a renewal after another owner has come in is Lost"]
    BoundToRuntime POLL ["a hold outlives the runtime in which it was taken"]

    ShortLease POLL ["nobody comes in before the holder's deadline"]
    RenewedForEver POLL ["a silent holder's lock goes to the next one in time"]
    RenewsInWords POLL ["a renewal prolongs the lock in the store"]
    RenewsExpired POLL ["a renewal after the end is Lost and creates nothing"]
    RenewalCreates POLL ["a renewal after an operator took the lock is Lost and creates nothing"]
    RenewsForAnother POLL ["a renewal that comes too late prolongs nobody else's lock"]
    Remembers POLL ["a lock that an operator freed goes to the next one at once"]
    SessionOutlives SESSION ["the end of a session lets the next one in"]
    TellsNobody SESSION ["a holder is told of the end of its session within the stated time"]
    TellsLate SESSION ["a holder is told of the end of its session within the stated time"]
    TellsNeighbours SESSION ["a session that lives is not told as ended"]
    DeadSessionWasOurs SESSION ["a release does not say that the lock was ours if its session had ended"]
    RoundsUp POLL ["what is granted is what was asked"]
    CountsFromReply POLL ["a grant counts from before the request"]
    RenewalCountsFromReply POLL ["a renewal counts from before the request"]
    WrongUnit POLL ["a refused owner is told no more than the holder's ttl"]

    KeepsTokenOfClient POLL ["the token rises over a release"]
    CounterExpires POLL ["the token rises over an expiry"]
    CounterInRecord POLL ["the token rises although an operator took the lock"]
    BlocksPerClient POLL ["the token rises from client to client and back"]
    CounterAbandoned POLL ["the token rises over an abandoned grant"]
    LowersToken POLL ["a repeated ask of its owner never lowers the token"]
    RestartForgetsTokens POLL ["the token rises over a restart of the store"]
    RestartForgetsHolds POLL ["a hold survives a restart of the store"]

    LeavesTombstone POLL ["a release leaves nothing in the store"]
    LeavesPlace POLL ["a contended attempt that does not stand in line leaves nothing"]
    AbandonKeepsPlace LINE ["an abandoned wait leaves nothing and leaves the holder alone"]
    AbandonLeavesGhost POLL ["an abandoned grant is free"]
    AbandonsOnce POLL ["an abandon may come twice, and without need"]
    RequestRunsOn POLL ["an attempt dropped anywhere is undone by an abandon"]
    MixesReplies POLL ["a renewal dropped anywhere leaves the client usable"]

    CallerKeepsConnection POLL ["a caller that is not polled holds up no other caller"]

    LastInFirstOut LINE ["waiters are served in the order in which they came"]
    NoNews LINE ["a waiter is woken by the release"]
    NoTime LINE ["a waiter behind a dead holder learns of its end"]
    DeadWaiterStays LINE ["a dead waiter does not block the line"]

    HandsOverOldToken PUSH ["a lock that was handed over has a token above the former one"]
    HandsOverOnce PUSH ["a lock that was handed over can be renewed and released"]
    CountsFromNews PUSH ["a lock that was handed over does not count from its news"]
    KeepsUntaken PUSH ["news that nobody took do not block the next one"]

    ReservesNothing KINDS ["reserved tokens are above the hold's and below those of the next holder"]
    ReservesOnly KINDS ["a reservation prolongs the lock in the store"]
    ReservesForLost KINDS ["a reservation after the hold's end is Lost and creates nothing"]
    ReservesBeforeOthers KINDS ["nothing is reserved while others wait, unless that is asked for"]

    CarriesOldToken PUSHED_KINDS ["a release that asks for the next caller gives it the free lock"]
    CarriedComesFirst PUSHED_KINDS ["a release that asks for the next caller puts it behind those who wait"]
    CarriesFromAnybody PUSHED_KINDS ["a release that comes too late asks, and takes the lock from nobody"]
    CarriesLateIsFine PUSHED_KINDS ["a release that comes too late asks, and takes the lock from nobody"]
    CarriedCountsFromReply PUSHED_KINDS ["a grant that a release has asked for counts from before the request"]
    KeepsCarried PUSHED_KINDS ["what a release has asked for leaves nothing when it is given up"]

    TogetherKeepsTokens KINDS ["free locks that are asked for together are all granted"]
    TogetherTakesSome KINDS ["one lock that is taken keeps those that are asked for with it free"]
    TogetherRefusesOwn KINDS ["who asks for several locks together again has them once"]
    TogetherRunsOn KINDS ["an attempt for several locks dropped anywhere is undone by their abandons"]
    TogetherInTwoSteps KINDS ["who asks for several locks together is alone with each"]
    TogetherOvertakes KINDS ["who asks for several locks together overtakes nobody in line"]

    FoldsCase POLL ["keys that differ by case are different locks"]
    TrimsBlanks POLL ["keys that differ by what trails are different locks"]
    CutsKeys POLL ["keys that differ after a long common beginning are different locks"]
    MixesSeparators POLL ["keys that differ by a separator are different locks"]
    RefusesLongest POLL ["the longest key works as any other"]
    ReleaseEndsOlder POLL ["the end of one lock leaves the client's others alone"]
    ReversesAnswers POLL ["holds renewed together are answered one by one, in order"]
    OneAnswerForGroup PUSH ["holds of one group are renewed by one request, and all answered"]

    NoteOfFirst POLL ["the holder's note can be read by another client"]
    NoteStays POLL ["after the release there is no note"]
    CutsNotes POLL ["the longest note comes back unchanged"]
    OwnerInNote POLL ["an owner is shown nowhere"]
    OwnerInError POLL ["an owner is shown nowhere"]
    ChangesItsMind POLL ["capabilities are the same at each call and for each client"]

    OutageIsContention POLL ["a store that is down is an outage, not contention"]
    SilenceIsContention POLL ["a store that is silent is told neither as contention nor as a grant"]
    OutageIsLost POLL ["while the store is down, a lease is unknown and not lost"]
    SaysNeverSent POLL ["a request that is said never to have left has left nothing"]
    StaysBroken POLL ["after an outage the same client works again"]
    TrustsClientClock POLL ["a client's wrong clock changes nothing"]

    ConflictWaits KINDS ["a kind of another family is a conflict, and leaves nothing"]
    LeavesReader KINDS ["a lock of any kind leaves nothing in the store"]
    TellsLatest KINDS ["of several holders the first one is told"]
    TakesAnother KINDS ["a shared hold that is asked for again is one hold"]
    TokensPerKind KINDS ["the token rises from kind to kind"]

    FewReaders KINDS ["readers hold a lock together"]
    ReaderBesideWriter KINDS ["a writer holds a lock alone"]
    ReadersOvertake KINDS ["a reader does not overtake a writer that waits"]
    GaveUpWriterBars KINDS ["a writer that gave up keeps no reader away"]
    RenewsAllReaders KINDS ["a silent reader's share ends by itself, and alone"]
    ReleaseEndsReaders KINDS ["the end of one reader leaves the others alone"]

    OneTooMany KINDS ["so many permits are given, and not one more"]
    HighestSlot KINDS ["a permit has the lowest slot that is free"]
    LeaksPermits KINDS ["a silent holder's permit and slot come back, alone"]
    MixesNumbers KINDS ["another number of permits is a conflict"]

    KeepsHalf KINDS ["a kept key stays taken for its time"]
    KeepsForTtl KINDS ["a kept key goes to a waiter at the end of its time"]
    KeptIsRenewed KINDS ["a kept key is no longer its owner's"]
    KeptIsReleased KINDS ["a kept key is no longer its owner's"]
    KeptIsNobodys KINDS ["a kept key tells who held it"]
    KeptAlone KINDS ["of a shared lock only the share is kept"]
    KeepsNoShare KINDS ["of a shared lock only the share is kept"]

    StartsInTwoSteps KINDS ["a period has one start, whoever asks"]
    RunIsContention KINDS ["while a run goes on, others of its period hear that it was started"]
    ChecksRunOnce KINDS ["of those who wait for one run, one gets it"]
    FailureIsNoEnd KINDS ["a run that has ended is not started again, however it went"]
    ReleaseForgetsStart KINDS ["a start outlives its release"]
    AbandonIsStart KINDS ["an abandoned start gives its own period back"]
    AbandonForgetsAll KINDS ["an abandoned start gives its own period back"]
    AbandonForgetsRerun KINDS ["a run that was to be started again, and was abandoned, stays started"]
    OwnStartIsOver KINDS ["a claim that asks again has not begun its run"]
    ExpiryForgetsStart KINDS ["a run whose process died is not started again unasked"]
    NeverReruns KINDS ["a run whose process died is started again if asked for, once its lock is free"]
    ReleaseEndsRun KINDS ["a run that was given back without an end is free at once for whoever would run it again"]
    KeptGoesOn KINDS ["a run that goes on is contention for whoever would run it again, until its end"]
    EndedForGood KINDS ["the next period has a start of its own"]
    HeldIsAlreadyRun KINDS ["a run of an earlier period that goes on is contention"]
    IgnoresOffset KINDS ["the boundaries of periods come after their offset"]
    PeriodOfClient KINDS ["a period is counted by the store's clock"]
    FailureIsSuccess KINDS ["the last success is told, and a failure is none"]
    RecordsPeriodsOnly KINDS ["a success without a period is told, and is neither a start nor an end of one"]
    AnyEndIsEnd KINDS ["a success without a period is told, and is neither a start nor an end of one"]

    // Lies that break more than one promise.
    StartsPerClient KINDS [
        "a period has one start, whoever asks",
        "of those who wait for one run, one gets it",
        "a period is counted by the store's clock",
    ]
    RerunsAtOnce KINDS [
        "a run whose process died is started again if asked for, once its lock is free",
        "a run that was given back without an end is free at once for whoever would run it again",
        "a run that goes on is contention for whoever would run it again, until its end",
    ]
    RerunIsNoWait KINDS [
        "a run that was given back without an end is free at once for whoever would run it again",
        "a run that goes on is contention for whoever would run it again, until its end",
    ]
    ReleasesAnybody POLL [
        "a late release is told NotOwner and leaves the next holder alone",
        "a stranger whose owner differs in one byte changes nothing",
    ]
    KeepsDelivered POLL ["the token rises over an abandoned grant", "an abandoned grant is free"]
    AbandonFreesAnybody POLL [
        "a stranger whose owner differs in one byte changes nothing",
        "an abandoned wait leaves nothing and leaves the holder alone",
        "the longest key works as any other",
    ]
    NeverExpires POLL [
        "nobody comes in before the holder's deadline",
        "a silent holder's lock goes to the next one in time",
        "a renewal after the end is Lost and creates nothing",
        "a renewal that comes too late prolongs nobody else's lock",
        "the token rises over an expiry",
        "a client's wrong clock changes nothing",
    ]
    OutageIsFinal POLL [
        "a store that is down is an outage, not contention",
        "a store that is silent is told neither as contention nor as a grant",
        "while the store is down, a lease is unknown and not lost",
    ]
}
