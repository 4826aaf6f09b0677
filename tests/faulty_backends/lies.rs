//! The lies, the setup of the reference store in which each is told, and exactly the cases that catch it.

use std::time::Duration;

use dlock_contract::{Expiry, WakeStyle};

use crate::server::Setup;

const SHORT_POLL: WakeStyle = WakeStyle::Poll { from: Duration::from_millis(5), to: Duration::from_millis(50) };

/// Together they make every case applicable.
pub(crate) const SETUPS: [Setup; 8] = [POLL, LINE, PUSH, SESSION, PUSHED_SESSION, MODES, POLLED_MODES, PUSHED_MODES];
const POLL: Setup =
    Setup { name: "lease, poll", expiry: Expiry::Lease, wake: SHORT_POLL, grouped: false, parts: false, modes: false };
const LINE: Setup = Setup { name: "lease, hint", wake: WakeStyle::Hint, parts: true, ..POLL };
const PUSH: Setup = Setup { name: "lease, grant", wake: WakeStyle::Grant, grouped: true, ..POLL };
const SESSION: Setup = Setup { name: "session", expiry: Expiry::Session { told: Duration::from_millis(100) }, ..POLL };
const PUSHED_SESSION: Setup = Setup { name: "session, grant", wake: WakeStyle::Grant, ..SESSION };
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
    TwoSteps POLL ["many owners at once never hold the lock together"]
    TriesAnother LINE ["clients that reach only a part of the store and others never hold the lock together"]
    SettingsNameLocks POLL ["clients with different settings never hold the lock together"]
    AdmitsAnyWay POLL ["a client that would lock in another way gets no lock, and its probe says so"]
    OwnerIsNote POLL ["a second owner is refused, from any client"]
    CountsUp POLL ["an owner may ask again, and one release frees the lock"]
    ArmsNothing POLL ["a repeated request of an owner begins its lease anew"]
    FreesSilently POLL ["a release frees the lock and says so"]
    ReleasesAtSecondRequest POLL [
        "a release frees the lock and says so",
        "a release that meets renewals and looks reports no loss and ends no other hold",
    ]
    LateReleaseIsFine POLL ["a late release returns NotOwner and leaves the next holder alone"]
    ComparesShort POLL ["an owner id that differs in one byte changes nothing"]
    RenewsNothing POLL ["a renewal after another owner has come in is Lost"]
    BoundToRuntime POLL ["a hold outlives the runtime in which it was taken"]

    ShortLease POLL ["no second owner comes in before the holder's lease has ended"]
    RenewedForEver POLL ["a silent holder's lock goes to the next owner in time"]
    RenewsInWords POLL ["a renewal prolongs the lock in the store"]
    RenewsExpired POLL ["a renewal after the end is Lost and creates nothing"]
    RenewalCreates POLL ["a renewal after an operator took the lock is Lost and creates nothing"]
    RenewsForAnother POLL ["a late renewal prolongs no other owner's lock"]
    Remembers POLL ["a lock that an operator freed goes to the next owner at once"]
    SessionOutlives SESSION ["the end of a session lets the next owner in"]
    TellsNobody SESSION ["a holder hears of the end of its session within the stated time"]
    TellsLate SESSION ["a holder hears of the end of its session within the stated time"]
    LosesNeighbours SESSION ["the end of one session ends no other one's hold"]
    DeadSessionWasOurs SESSION ["a release reports no success if the session had ended before"]
    // A store on a busy machine may be so: all other cases try it again with longer leases.
    TooSlowForShortLeases POLL ["a grant has the ttl and the claim that were asked for"]
    RoundsUp POLL ["a grant has the ttl and the claim that were asked for"]
    KeepsAMinute POLL ["the store keeps a lease of any ttl as long as its holder believes"]
    CountsFromReply POLL ["a grant counts from before the request"]
    RenewalCountsFromReply POLL ["a renewal counts from before the request"]
    WrongUnit POLL ["a refused owner hears of no longer lease than the holder's ttl"]

    KeepsTokenOfClient POLL ["the token rises over a release"]
    CounterExpires POLL ["the token rises over an expiry"]
    CounterInRecord POLL ["the token rises although an operator took the lock"]
    BlocksPerClient POLL ["the token rises from client to client and back"]
    DrawsTokenFirst POLL ["the token falls at no grant while many owners ask"]
    CounterAbandoned POLL ["the token rises over an abandoned grant"]
    LowersToken POLL ["a repeated request of an owner never lowers its token"]
    RestartForgetsTokens POLL ["the token rises over a restart of the store"]
    RestartForgetsHolds POLL ["a hold survives a restart of the store"]

    LeavesTombstone POLL ["a release leaves nothing in the store"]
    LeavesPlace POLL ["a contended attempt that does not join the queue leaves nothing"]
    AbandonKeepsPlace LINE ["an abandoned wait leaves nothing and leaves the holder alone"]
    AbandonLeavesGhost POLL ["an abandoned grant is free"]
    AbandonsOnce POLL ["an abandon may come twice, and without need"]
    RequestRunsOn POLL ["an attempt dropped anywhere is undone by an abandon"]
    AbandonOvertakes POLL ["an abandon on dlock's own thread does not overtake its attempt"]
    ArrivesAfterAbandon POLL ["an attempt that arrives late leaves nothing once it was abandoned"]
    MixesReplies POLL ["a renewal dropped anywhere leaves the client usable"]

    CallerKeepsConnection POLL ["a caller whose future is not polled delays no other caller"]

    LookEndsNeighbours SESSION ["a release that meets renewals and looks reports no loss and ends no other hold"]
    LookHidesRelease POLL ["a release that meets renewals and looks reports no loss and ends no other hold"]

    ReleasesInTwoSteps POLL ["a release that another one overtakes ends no later hold"]
    RenewsInTwoSteps POLL ["a renewal that a release overtakes changes no later hold"]
    BreaksInTwoSteps POLL ["a break that a release overtakes ends no later hold"]
    AbandonsInTwoSteps POLL ["an abandon that another one overtakes ends no later hold"]
    KeepsInTwoSteps MODES ["an end with a kept key that a release overtakes ends no later hold"]
    EndsRunInTwoSteps MODES ["an end of a run that a release overtakes ends no later hold"]
    ReservesInTwoSteps MODES ["a reservation of tokens that a release overtakes changes no later hold"]
    CarriesInTwoSteps PUSHED_MODES ["a release that asks for the next caller and is overtaken ends no later hold"]

    WrongHoldIds POLL ["look shows each holder with its hold id"]
    NamesTheAsker POLL ["a refusal that names a holder names the current one"]
    NamesLatestWaiterFirst LINE ["waiters that a store names are those of its queue, in their order"]
    BreaksInWords POLL ["a broken hold is Lost, and the next owner gets the lock"]
    LeavesNoRecord POLL ["the owner of a broken hold can read who broke it"]
    BreaksAnybody POLL ["an id of an earlier hold breaks nothing"]
    ListsOnePage POLL ["a listing has each lock that is held, page by page"]
    ListsByPattern POLL ["a listing has only the keys of its prefix"]
    ListsReleased POLL ["a listing has no lock that was released"]

    LetsClientGoOn LINE ["a client that asks again and again leaves the lock to one that waits"]
    LastInFirstOut LINE ["waiters are served in the order in which they came"]
    NoNews LINE ["a release wakes a waiter"]
    NoTime LINE ["a waiter behind a dead holder hears when the lease has ended"]
    DeadWaiterStays LINE ["a dead waiter does not block the queue"]

    HandsOverOldToken PUSH ["a lock that was handed over has a higher token"]
    HandsOverOnce PUSH ["a lock that was handed over can be renewed and released"]
    CountsFromNews PUSH ["the lease of a lock that was handed over does not count from its notification"]
    HandsOverShort PUSH ["a lock that was handed over is kept as long as its holder believes"]
    RenewsHandedOverShort PUSH ["a lock that was handed over is kept as long as its holder believes"]
    KeepsUntaken PUSH ["a notification that nobody read does not block the next waiter"]

    ReservesNothing MODES ["reserved tokens are above the hold's token and below the next holder's"]
    ReservesOnly MODES ["a reservation of tokens prolongs the lock in the store"]
    ReservesShort MODES ["with a reservation of tokens the lock is kept as long as its holder believes"]
    ReservesForLost MODES ["a reservation of tokens after the hold's end is Lost and creates nothing"]
    ReservesBeforeOthers MODES ["no tokens are reserved while others wait, unless the claim asks for it"]

    CarriesOldToken PUSHED_MODES ["a release that asks for the next caller gives it the free lock"]
    CarriedComesFirst PUSHED_MODES ["a release that asks for the next caller puts it behind other waiters"]
    CarriesFromAnybody PUSHED_MODES ["a late release asks for the next caller and takes the lock from nobody"]
    CarriesLateIsFine PUSHED_MODES ["a late release asks for the next caller and takes the lock from nobody"]
    CarriedCountsFromReply PUSHED_MODES ["a grant to the next caller counts from before the release was sent"]
    CarriesShort PUSHED_MODES ["a grant to the next caller is kept as long as its holder believes"]
    AbandonOvertakesCarried PUSHED_MODES [
        "an abandon on dlock's own thread does not overtake the release that asks for its claim",
    ]
    KeepsCarried PUSHED_MODES ["the next caller of a release leaves nothing when it gives up"]

    TogetherKeepsTokens MODES ["free locks that are asked for together are all granted"]
    TogetherIsShort MODES ["locks that are taken together are each kept as long as their holder believes"]
    TogetherTakesSome MODES ["if one of several locks is taken, the others stay free"]
    TogetherRefusesOwn MODES ["an owner that asks again for several locks together has them once"]
    TogetherRunsOn MODES ["an attempt for several locks dropped anywhere is undone by their abandons"]
    AbandonOvertakesTogether MODES [
        "an abandon on dlock's own thread does not overtake a request for several locks",
    ]
    TogetherInTwoSteps MODES ["a holder of several locks together is the only holder of each"]
    TogetherOvertakes MODES ["a request for several locks together overtakes no waiter"]

    FoldsCase POLL ["keys that differ by case are different locks"]
    TrimsBlanks POLL ["keys that differ in their last characters are different locks"]
    CutsKeys POLL ["keys that differ after a long common beginning are different locks"]
    MixesSeparators POLL ["keys that differ by a separator are different locks"]
    IdentityOfClient POLL ["a key is one lock for each client, and different keys are different ones"]
    OneIdentity POLL [
        "a key is one lock for each client, and different keys are different ones",
        "a listing has each lock that is held, page by page",
        "a listing has only the keys of its prefix",
        "a listing has no lock that was released",
    ]
    HostIsUrl POLL ["the place of the store is its hosts and ports, or its file, and names no account"]
    HostIsKind POLL ["the place of the store is its hosts and ports, or its file, and names no account"]
    RefusesLongest POLL ["the longest key works like any other key"]
    ReleaseEndsOlder POLL ["the end of one lock leaves the client's other locks alone"]
    ReversesAnswers POLL ["holds that are renewed together get one answer each, in order"]
    OneAnswerForGroup PUSH ["holds of one group are renewed in one request and each gets an answer"]

    HashesKeys POLL ["many keys are as many locks, and all of them are held at once"]
    AsksForSomeOfABatch POLL ["each of many holds that are renewed in one request is renewed"]
    RenewsSomeOfABatch POLL ["each of many holds that are renewed in one request is renewed"]

    NoteOfFirst POLL ["the holder's note can be read by another client"]
    NoteStays POLL ["after the release there is no note"]
    CutsNotes POLL ["the longest note is read back unchanged"]
    OwnerInNote POLL ["an owner id is shown nowhere"]
    OwnerInError POLL ["an owner id is shown nowhere"]
    ChangesItsMind POLL ["the profile and the powers are the same at each call and for each client"]
    WithdrawsAPower PUSHED_MODES [
        "the profile and the powers are the same at each call and for each client",
        "a release that asks for the next caller and is overtaken ends no later hold",
    ]

    OutageIsContention POLL ["a store that is down is an outage, not contention"]
    SilenceIsContention POLL ["a silent store is reported neither as contention nor as a grant"]
    OutageIsLost POLL ["while the store is down, a lease is unknown and not lost"]
    LostAnswerIsLoss POLL ["a release whose answer was lost is no loss, and ends when it is asked for again"]
    ReleasesNoSecondTime POLL ["a release whose answer was lost is no loss, and ends when it is asked for again"]
    ForgetsSwallowedRelease POLL ["a client's first release that is swallowed is asked for again until the lock is free"]
    AlwaysReady POLL ["a store that answers is ready, and one that is down is not"]
    ReadyWhileConnected POLL ["a store that answers is ready, and one that is down is not"]
    ReadyInQuarantine POLL ["a store that is ready after a restart grants locks"]
    NeverReady POLL [
        "a store that answers is ready, and one that is down is not",
        "a store that is ready after a restart grants locks",
    ]
    SaysNeverSent POLL ["a request that is reported as never sent leaves nothing"]
    StaysBroken POLL ["after an outage the same client works again"]
    TrustsClientClock POLL ["a client's wrong clock changes nothing"]

    ConflictWaits MODES ["a mode of another family is a conflict, and leaves nothing"]
    LeavesReader MODES ["a lock of any mode leaves nothing in the store"]
    TellsLatest MODES ["of several holders look shows the first one first"]
    TakesAnother MODES ["an owner that asks again for a shared lock has one hold"]
    TokensPerMode MODES ["the token rises from mode to mode"]

    FewReaders MODES ["readers hold a lock together"]
    KeepsReadersShort MODES ["a reader's hold is kept as long as its holder believes"]
    ReaderBesideWriter MODES ["a writer holds a lock alone"]
    ReadersOvertake MODES ["a reader does not overtake a writer that waits"]
    GaveUpWriterBars MODES ["a writer that gave up keeps no reader out"]
    RenewsAllReaders MODES ["a silent reader's hold ends, and no other reader's"]
    ReleaseEndsReaders MODES ["the end of one reader leaves the others alone"]

    OneTooMany MODES ["the stated number of permits is granted, and not one more"]
    KeepsPermitsShort MODES ["a permit is kept as long as its holder believes"]
    HighestSlot MODES ["a permit has the lowest free slot"]
    LeaksPermits MODES ["only a silent holder's permit and slot come back"]
    MixesNumbers MODES ["a claim with another number of permits is a conflict"]

    KeepsHalf MODES ["a kept key stays taken for its time"]
    KeepsForTtl MODES ["a kept key goes to a waiter at the end of its time"]
    KeptIsRenewed MODES ["a kept key no longer belongs to its owner"]
    KeptIsReleased MODES ["a kept key no longer belongs to its owner"]
    KeptIsNobodys MODES ["look at a kept key shows who held it"]
    KeptAlone MODES ["of several permits only the kept one stays taken"]
    KeepsNoShare MODES ["of several permits only the kept one stays taken"]

    SettlesInWords SESSION ["settled work is final"]
    ReleaseSettles SESSION ["work that was not settled is undone by the release"]
    RefusedIsFine SESSION ["work whose hold was ended from outside is refused and undone"]
    SeesNoWork SESSION ["a hold has work once its body has worked, and not before"]

    SeesNoCircle PUSHED_SESSION ["of two calls that wait for each other's locks one gives way and the other one goes on"]
    BothGiveWay PUSHED_SESSION ["of two calls that wait for each other's locks one gives way and the other one goes on"]
    CircleIsOutage PUSHED_SESSION ["of two calls that wait for each other's locks one gives way and the other one goes on"]
    GivenWayStays PUSHED_SESSION ["of two calls that wait for each other's locks one gives way and the other one goes on"]
    NestedIsCircle PUSHED_SESSION ["a wait inside of another hold that closes no circle ends as any other"]

    StartsInTwoSteps MODES ["a period has one start, however many callers ask"]
    RunIsContention MODES ["while a run goes on, other callers of its period hear that it was started"]
    ChecksRunOnce MODES ["one of several waiters for a run gets it"]
    FailureIsNoEnd MODES ["a run that has ended is not started again, whatever its result"]
    ReleaseForgetsStart MODES ["a period stays started after the release"]
    AbandonIsStart MODES ["an abandoned start gives its own period back"]
    AbandonForgetsAll MODES ["an abandoned start gives its own period back"]
    AbandonForgetsRerun MODES ["an abandoned second start of a run leaves the period started"]
    OwnStartIsOver MODES ["a claim that asks again for its own run gets it"]
    ExpiryForgetsStart MODES ["a run whose process died is not started again by default"]
    NeverReruns MODES ["with rerun, a run whose process died is started again once its lock is free"]
    ReleaseEndsRun MODES ["with rerun, a run that was released without a result can be started again at once"]
    KeptGoesOn MODES ["with rerun, a run that goes on is contention until its end"]
    EndedForGood MODES ["the next period has a start of its own"]
    HeldIsAlreadyRun MODES ["a run of an earlier period that goes on is contention"]
    IgnoresOffset MODES ["the boundaries of periods come after their offset"]
    PeriodOfClient MODES ["periods are counted by the store's clock"]
    FailureIsSuccess MODES ["the last success is reported, and a failure is not"]
    RecordsPeriodsOnly MODES ["a success without a period is reported, and neither starts nor ends a period"]
    AnyEndIsEnd MODES ["a success without a period is reported, and neither starts nor ends a period"]

    // Lies that break more than one promise.
    EvictsOldest POLL [
        "many keys are as many locks, and all of them are held at once",
        "each of many holds that are renewed in one request is renewed",
    ]
    StartsPerClient MODES [
        "a period has one start, however many callers ask",
        "one of several waiters for a run gets it",
        "periods are counted by the store's clock",
    ]
    RerunsAtOnce MODES [
        "with rerun, a run whose process died is started again once its lock is free",
        "with rerun, a run that was released without a result can be started again at once",
        "with rerun, a run that goes on is contention until its end",
    ]
    RerunIsNoWait MODES [
        "with rerun, a run that was released without a result can be started again at once",
        "with rerun, a run that goes on is contention until its end",
    ]
    ReleasesAnybody POLL [
        "a late release returns NotOwner and leaves the next holder alone",
        "an owner id that differs in one byte changes nothing",
        "a release that another one overtakes ends no later hold",
        "a break that a release overtakes ends no later hold",
    ]
    KeepsDelivered POLL ["the token rises over an abandoned grant", "an abandoned grant is free"]
    AbandonFreesAnybody POLL [
        "an owner id that differs in one byte changes nothing",
        "an abandoned wait leaves nothing and leaves the holder alone",
        "an abandon on dlock's own thread does not overtake its attempt",
        "an abandon that another one overtakes ends no later hold",
        "the longest key works like any other key",
    ]
    NeverExpires POLL [
        "no second owner comes in before the holder's lease has ended",
        "a silent holder's lock goes to the next owner in time",
        "a renewal after the end is Lost and creates nothing",
        "a late renewal prolongs no other owner's lock",
        "the token rises over an expiry",
        "a client's wrong clock changes nothing",
    ]
    OutageIsFinal POLL [
        "a store that is down is an outage, not contention",
        "a silent store is reported neither as contention nor as a grant",
        "while the store is down, a lease is unknown and not lost",
        "a client's first release that is swallowed is asked for again until the lock is free",
        "a store that answers is ready, and one that is down is not",
    ]
}
