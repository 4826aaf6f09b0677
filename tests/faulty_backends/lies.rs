//! The lies, the setup of the reference store in which each is told, and exactly the cases that catch it.

use std::time::Duration;

use dlock_contract::{Expiry, WakeStyle};

use crate::server::Setup;

const SHORT_POLL: WakeStyle = WakeStyle::Poll { from: Duration::from_millis(5), to: Duration::from_millis(50) };

/// Together they make every case applicable.
pub(crate) const SETUPS: [Setup; 7] = [POLL, LINE, PUSH, SESSION, MODES, POLLED_MODES, PUSHED_MODES];
const POLL: Setup =
    Setup { name: "lease, poll", expiry: Expiry::Lease, wake: SHORT_POLL, grouped: false, modes: false };
const LINE: Setup = Setup { name: "lease, hint", wake: WakeStyle::Hint, ..POLL };
const PUSH: Setup = Setup { name: "lease, grant", wake: WakeStyle::Grant, grouped: true, ..POLL };
const SESSION: Setup = Setup { name: "session", expiry: Expiry::Session { told: Duration::from_millis(100) }, ..POLL };
const MODES: Setup = Setup { name: "modes, hint", modes: true, ..LINE };
const POLLED_MODES: Setup = Setup { name: "modes, poll", modes: true, ..POLL };
const PUSHED_MODES: Setup = Setup { name: "modes, grant", modes: true, ..PUSH };

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
    LosesNeighbours SESSION ["the end of one session ends no other one's hold"]
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

    WrongHoldIds POLL ["a look tells each holder by the id of its hold"]
    NamesTheAsker POLL ["a refusal that names a holder names the present one"]
    BreaksInWords POLL ["a broken hold is Lost, and the next one comes in"]
    LeavesNoRecord POLL ["a broken hold's owner reads who broke it"]
    BreaksAnybody POLL ["an id of an earlier hold breaks nothing"]
    ListsOnePage POLL ["a listing has each lock that is held, page by page"]
    ListsByPattern POLL ["a listing has only the keys of its prefix"]
    ListsReleased POLL ["a listing has no lock that was released"]

    LastInFirstOut LINE ["waiters are served in the order in which they came"]
    NoNews LINE ["a waiter is woken by the release"]
    NoTime LINE ["a waiter behind a dead holder learns of its end"]
    DeadWaiterStays LINE ["a dead waiter does not block the line"]

    HandsOverOldToken PUSH ["a lock that was handed over has a token above the former one"]
    HandsOverOnce PUSH ["a lock that was handed over can be renewed and released"]
    CountsFromNews PUSH ["a lock that was handed over does not count from its news"]
    KeepsUntaken PUSH ["news that nobody took do not block the next one"]

    ReservesNothing MODES ["reserved tokens are above the hold's and below those of the next holder"]
    ReservesOnly MODES ["a reservation prolongs the lock in the store"]
    ReservesForLost MODES ["a reservation after the hold's end is Lost and creates nothing"]
    ReservesBeforeOthers MODES ["nothing is reserved while others wait, unless that is asked for"]

    CarriesOldToken PUSHED_MODES ["a release that asks for the next caller gives it the free lock"]
    CarriedComesFirst PUSHED_MODES ["a release that asks for the next caller puts it behind those who wait"]
    CarriesFromAnybody PUSHED_MODES ["a release that comes too late asks, and takes the lock from nobody"]
    CarriesLateIsFine PUSHED_MODES ["a release that comes too late asks, and takes the lock from nobody"]
    CarriedCountsFromReply PUSHED_MODES ["a grant that a release has asked for counts from before the request"]
    KeepsCarried PUSHED_MODES ["what a release has asked for leaves nothing when it is given up"]

    TogetherKeepsTokens MODES ["free locks that are asked for together are all granted"]
    TogetherTakesSome MODES ["one lock that is taken keeps those that are asked for with it free"]
    TogetherRefusesOwn MODES ["who asks for several locks together again has them once"]
    TogetherRunsOn MODES ["an attempt for several locks dropped anywhere is undone by their abandons"]
    TogetherInTwoSteps MODES ["who asks for several locks together is alone with each"]
    TogetherOvertakes MODES ["who asks for several locks together overtakes nobody in line"]

    FoldsCase POLL ["keys that differ by case are different locks"]
    TrimsBlanks POLL ["keys that differ by what trails are different locks"]
    CutsKeys POLL ["keys that differ after a long common beginning are different locks"]
    MixesSeparators POLL ["keys that differ by a separator are different locks"]
    IdentityOfClient POLL ["a key is one lock for each client, and different keys are different ones"]
    OneIdentity POLL [
        "a key is one lock for each client, and different keys are different ones",
        "a listing has each lock that is held, page by page",
        "a listing has only the keys of its prefix",
        "a listing has no lock that was released",
    ]
    RefusesLongest POLL ["the longest key works as any other"]
    ReleaseEndsOlder POLL ["the end of one lock leaves the client's others alone"]
    ReversesAnswers POLL ["holds renewed together are answered one by one, in order"]
    OneAnswerForGroup PUSH ["holds of one group are renewed by one request, and all answered"]

    NoteOfFirst POLL ["the holder's note can be read by another client"]
    NoteStays POLL ["after the release there is no note"]
    CutsNotes POLL ["the longest note comes back unchanged"]
    OwnerInNote POLL ["an owner is shown nowhere"]
    OwnerInError POLL ["an owner is shown nowhere"]
    ChangesItsMind POLL ["the profile and the powers are the same at each call and for each client"]
    WithdrawsAPower PUSHED_MODES ["the profile and the powers are the same at each call and for each client"]

    OutageIsContention POLL ["a store that is down is an outage, not contention"]
    SilenceIsContention POLL ["a store that is silent is told neither as contention nor as a grant"]
    OutageIsLost POLL ["while the store is down, a lease is unknown and not lost"]
    AlwaysReady POLL ["a store that answers is ready, and one that is down is not"]
    NeverReady POLL ["a store that answers is ready, and one that is down is not"]
    SaysNeverSent POLL ["a request that is said never to have left has left nothing"]
    StaysBroken POLL ["after an outage the same client works again"]
    TrustsClientClock POLL ["a client's wrong clock changes nothing"]

    ConflictWaits MODES ["a mode of another family is a conflict, and leaves nothing"]
    LeavesReader MODES ["a lock of any mode leaves nothing in the store"]
    TellsLatest MODES ["of several holders the first one is told"]
    TakesAnother MODES ["a shared hold that is asked for again is one hold"]
    TokensPerMode MODES ["the token rises from mode to mode"]

    FewReaders MODES ["readers hold a lock together"]
    ReaderBesideWriter MODES ["a writer holds a lock alone"]
    ReadersOvertake MODES ["a reader does not overtake a writer that waits"]
    GaveUpWriterBars MODES ["a writer that gave up keeps no reader away"]
    RenewsAllReaders MODES ["a silent reader's share ends by itself, and alone"]
    ReleaseEndsReaders MODES ["the end of one reader leaves the others alone"]

    OneTooMany MODES ["so many permits are given, and not one more"]
    HighestSlot MODES ["a permit has the lowest slot that is free"]
    LeaksPermits MODES ["a silent holder's permit and slot come back, alone"]
    MixesNumbers MODES ["another number of permits is a conflict"]

    KeepsHalf MODES ["a kept key stays taken for its time"]
    KeepsForTtl MODES ["a kept key goes to a waiter at the end of its time"]
    KeptIsRenewed MODES ["a kept key is no longer its owner's"]
    KeptIsReleased MODES ["a kept key is no longer its owner's"]
    KeptIsNobodys MODES ["a kept key tells who held it"]
    KeptAlone MODES ["of a shared lock only the share is kept"]
    KeepsNoShare MODES ["of a shared lock only the share is kept"]

    StartsInTwoSteps MODES ["a period has one start, whoever asks"]
    RunIsContention MODES ["while a run goes on, others of its period hear that it was started"]
    ChecksRunOnce MODES ["of those who wait for one run, one gets it"]
    FailureIsNoEnd MODES ["a run that has ended is not started again, however it went"]
    ReleaseForgetsStart MODES ["a start outlives its release"]
    AbandonIsStart MODES ["an abandoned start gives its own period back"]
    AbandonForgetsAll MODES ["an abandoned start gives its own period back"]
    AbandonForgetsRerun MODES ["a run that was to be started again, and was abandoned, stays started"]
    OwnStartIsOver MODES ["a claim that asks again has not begun its run"]
    ExpiryForgetsStart MODES ["a run whose process died is not started again unasked"]
    NeverReruns MODES ["a run whose process died is started again if asked for, once its lock is free"]
    ReleaseEndsRun MODES ["a run that was given back without an end is free at once for whoever would run it again"]
    KeptGoesOn MODES ["a run that goes on is contention for whoever would run it again, until its end"]
    EndedForGood MODES ["the next period has a start of its own"]
    HeldIsAlreadyRun MODES ["a run of an earlier period that goes on is contention"]
    IgnoresOffset MODES ["the boundaries of periods come after their offset"]
    PeriodOfClient MODES ["a period is counted by the store's clock"]
    FailureIsSuccess MODES ["the last success is told, and a failure is none"]
    RecordsPeriodsOnly MODES ["a success without a period is told, and is neither a start nor an end of one"]
    AnyEndIsEnd MODES ["a success without a period is told, and is neither a start nor an end of one"]

    // Lies that break more than one promise.
    StartsPerClient MODES [
        "a period has one start, whoever asks",
        "of those who wait for one run, one gets it",
        "a period is counted by the store's clock",
    ]
    RerunsAtOnce MODES [
        "a run whose process died is started again if asked for, once its lock is free",
        "a run that was given back without an end is free at once for whoever would run it again",
        "a run that goes on is contention for whoever would run it again, until its end",
    ]
    RerunIsNoWait MODES [
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
        "a store that answers is ready, and one that is down is not",
    ]
}
