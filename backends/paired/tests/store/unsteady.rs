//! Stores that forget, refuse or fall silent at the worst moment. No server can be told to do that at one request alone.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Claim, Error, Health, Hold, LockKey, LockState, Profile, Queue, Released, Result, Signal,
    Standing, Wake,
};
use dlock_memory::Memory;
use dlock_paired::{GateDown, Migrating, Paired};
use dlock_store::Clock;
use dlock_testkit::holds::{claim, claim_on, stand, take, until};
use futures::future::{BoxFuture, Either, select};

use crate::kit::{SOON, TTL};

const WELL: u8 = 0;
const REFUSES: u8 = 1;
const SILENT: u8 = 2;

/// A store in memory that can be told to fail.
struct Unsteady {
    inner: Memory,
    profile: Profile,
    state: AtomicU8,
    /// The attempts that it was asked for.
    attempts: AtomicUsize,
    /// The releases and abandons that it has answered.
    freed: AtomicUsize,
}

impl Unsteady {
    fn new() -> Arc<Self> {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Profile)) -> Arc<Self> {
        let inner = Memory::new();
        let profile = inner.profile().clone().with(change);
        let (attempts, freed) = Default::default();
        Arc::new(Self { inner, profile, state: AtomicU8::new(WELL), attempts, freed })
    }

    fn becomes(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }

    async fn answers(&self) -> Result<()> {
        match self.state.load(Ordering::SeqCst) {
            REFUSES => Err(Error::outage("refused")),
            SILENT => {
                while self.state.load(Ordering::SeqCst) == SILENT {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(Error::outage("silent"))
            }
            _ => Ok(()),
        }
    }

    async fn until_it_has_freed(&self, wanted: usize) {
        let clock = Clock::system();
        let end = clock.now().after(SOON);
        while self.freed.load(Ordering::SeqCst) < wanted {
            assert!(clock.now() < end, "nobody gave back what is left in the store");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Backend for Unsteady {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            self.attempts.fetch_add(1, Ordering::SeqCst);
            self.answers().await?;
            Ok(match self.inner.try_acquire(claim, queue).await? {
                Attempt::Contended(wake) => Attempt::Contended(in_a_line_far_away(wake)),
                answer => answer,
            })
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            match self.answers().await {
                Ok(()) => self.inner.renew(holds).await,
                Err(error) => holds.iter().map(|_| Err(error.again())).collect(),
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            self.answers().await?;
            self.freed.fetch_add(1, Ordering::SeqCst);
            self.inner.release(hold).await
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.answers().await?;
            self.freed.fetch_add(1, Ordering::SeqCst);
            self.inner.abandon(claim).await
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        self.inner.look(key)
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move {
            self.answers().await?;
            self.inner.ready().await
        })
    }

    fn admits<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.answers())
    }
}

#[tokio::test]
async fn a_namespace_is_admitted_if_both_stores_admit_it() {
    let (one, other) = (Unsteady::new(), Unsteady::new());
    let pair = |down| Paired::builder(one.clone(), other.clone()).gate_down(down).build().unwrap();
    let (strict, loose) = (pair(GateDown::Fail), pair(GateDown::Authority));
    let moving = Migrating::builder(one.clone(), other.clone()).build().unwrap();
    let key = claim("a", TTL).key.clone();
    let admit =
        async || [strict.admits(&key).await, loose.admits(&key).await, moving.admits(&key).await].map(|it| it.is_ok());
    assert_eq!(admit().await, [true; 3]);
    one.becomes(REFUSES);
    assert_eq!(admit().await, [false, true, false]);
    one.becomes(WELL);
    other.becomes(REFUSES);
    assert_eq!(admit().await, [false; 3]);
}

/// A call that the gate does not grant costs the authority nothing.
#[tokio::test]
async fn an_authority_is_asked_only_for_what_the_gate_has_granted() {
    let (gate, authority) = (Unsteady::new(), Unsteady::new());
    let pair = Paired::builder(gate.clone(), authority.clone()).build().unwrap();
    let ours = claim("granted by the gate", TTL);
    let others = claim_on(&ours.key, TTL, |_| ());
    let in_gate = take(&*gate, &others).await;
    assert!(matches!(pair.try_acquire(&ours, Queue::Leave).await, Ok(Attempt::Contended(_))));
    gate.becomes(REFUSES);
    pair.try_acquire(&ours, Queue::Leave).await.unwrap_err();
    assert_eq!(authority.attempts.load(Ordering::SeqCst), 0);
    gate.becomes(WELL);
    gate.release(&in_gate).await.unwrap();
    take(&pair, &ours).await;
    assert_eq!(authority.attempts.load(Ordering::SeqCst), 1);
}

/// The first call waits for a silent gate. Those after it go to the authority at once.
#[tokio::test]
async fn a_silent_gate_is_not_asked_by_every_call() {
    let (gate, authority) = (Unsteady::new(), Unsteady::new());
    let pair = Paired::builder(gate.clone(), authority).gate_down(GateDown::Authority).build().unwrap();
    gate.becomes(SILENT);
    for call in 0..200 {
        take(&pair, &claim(&format!("silent gate {call}"), TTL)).await;
    }
    assert_eq!(gate.attempts.load(Ordering::SeqCst), 1);
}

/// Dropping a wake leaves the place in the line, as it does in a store behind a network.
fn in_a_line_far_away(mut wake: Wake) -> Wake {
    wake.signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            if let Err(untold) = tell.send(signal.await) {
                std::mem::forget(untold);
            }
        });
        Box::pin(async { told.await.unwrap() })
    });
    wake
}

fn migrating(old: &Arc<Unsteady>, new: &Arc<Unsteady>) -> Migrating {
    Migrating::builder(old.clone(), new.clone()).build().unwrap()
}

/// A claim that lost the old store stays out of the new one's line. Else it would wait for the old store's next owner there,
/// and that one for it.
#[tokio::test]
async fn two_waiters_of_a_migration_never_wait_for_each_other() {
    let (old, new) = (Unsteady::new(), Unsteady::new());
    let both = migrating(&old, &new);
    let ours = claim("each other", TTL);
    let others = claim_on(&ours.key, TTL, |_| ());
    let next = claim_on(&ours.key, TTL, |_| ());
    let in_new = take(&*new, &others).await;
    let first_wake = stand(&both, &ours).await;
    // The old store forgets, as a Redis does that restarts.
    old.inner.abandon(&ours).await.unwrap();
    let next_wake = stand(&both, &next).await;
    let second_wake = stand(&both, &ours).await;
    drop(first_wake);
    assert_eq!(new.release(&in_new).await.unwrap(), Released::Released);
    drop(next_wake);
    let answer = both.try_acquire(&next, until()).await.unwrap();
    assert!(matches!(answer, Attempt::Acquired(_)), "the owner of the old store waits for one that waits for it");
    drop(second_wake);
}

#[tokio::test]
async fn a_loss_in_one_store_does_not_wait_for_the_other() {
    for silent_is_old in [true, false] {
        let (old, new) = (Unsteady::new(), Unsteady::new());
        let both = migrating(&old, &new);
        let ours = claim("told at once", TTL);
        let hold = take(&both, &ours).await;
        let (silent, lost) = if silent_is_old { (&old, &new) } else { (&new, &old) };
        silent.becomes(SILENT);
        lost.inner.abandon(&ours).await.unwrap();
        let answers = tokio::time::timeout(SOON, both.renew(&[&hold])).await.expect("the loss was kept back");
        assert!(matches!(answers[0], Ok(Standing::Lost)), "{answers:?}");
        silent.becomes(WELL);
        silent.until_it_has_freed(1).await;
    }
}

/// The engine takes an error of a release for a lease that lasted.
#[tokio::test]
async fn a_release_tells_of_a_loss_in_one_store_although_the_other_fails() {
    for failing_is_old in [true, false] {
        let (old, new) = (Unsteady::new(), Unsteady::new());
        let both = migrating(&old, &new);
        let ours = claim("lost before its release", TTL);
        let hold = take(&both, &ours).await;
        let (failing, lost) = if failing_is_old { (&old, &new) } else { (&new, &old) };
        failing.becomes(REFUSES);
        lost.inner.abandon(&ours).await.unwrap();
        assert_eq!(both.release(&hold).await.unwrap(), Released::NotOwner);
        failing.becomes(WELL);
        failing.until_it_has_freed(1).await;
    }
}

/// The first try has freed one store. The second try finds nothing there, and that is no loss.
#[tokio::test]
async fn a_release_that_is_tried_again_is_no_loss() {
    for failing_is_old in [true, false] {
        let (old, new) = (Unsteady::new(), Unsteady::new());
        let both = migrating(&old, &new);
        let hold = take(&both, &claim("tried again", TTL)).await;
        let failing = if failing_is_old { &old } else { &new };
        failing.becomes(REFUSES);
        both.release(&hold).await.unwrap_err();
        failing.becomes(WELL);
        assert_eq!(both.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(both.release(&hold).await.unwrap(), Released::NotOwner, "it has ended in both");
    }
}

/// The engine drops a release that takes too long, and tries it again.
#[tokio::test]
async fn a_release_frees_the_old_store_although_the_new_one_is_silent() {
    let (old, new) = (Unsteady::new(), Unsteady::new());
    let both = migrating(&old, &new);
    let hold = take(&both, &claim("silent at its end", TTL)).await;
    new.becomes(SILENT);
    match select(both.release(&hold), pin!(old.until_it_has_freed(1))).await {
        Either::Left((answer, _)) => panic!("a silent store answered: {answer:?}"),
        Either::Right(((), release)) => drop(release),
    }
    new.becomes(WELL);
    assert_eq!(both.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn nothing_of_what_is_given_back_later_is_forgotten() {
    let (gate, authority) = (Unsteady::new(), Unsteady::new());
    let pair = Paired::builder(gate.clone(), authority).build().unwrap();
    let mut holds = Vec::new();
    for number in 0..1500 {
        holds.push(take(&pair, &claim(&format!("given back {number}"), TTL)).await);
    }
    gate.becomes(REFUSES);
    for hold in &holds {
        assert_eq!(pair.release(hold).await.unwrap(), Released::Released);
    }
    gate.becomes(WELL);
    gate.until_it_has_freed(holds.len()).await;
}

/// The claim stands in the gate's line when the gate fails, and gets the lock past the gate.
#[tokio::test]
async fn a_place_in_the_line_of_a_gate_that_was_passed_over_is_given_back() {
    let (gate, authority) = (Unsteady::new(), Unsteady::new());
    let pair = Paired::builder(gate.clone(), authority.clone()).gate_down(GateDown::Authority).build().unwrap();
    let ours = claim("place", TTL);
    let stranger = take(&*gate, &claim_on(&ours.key, TTL, |_| ())).await;
    let wake = stand(&pair, &ours).await;
    gate.becomes(REFUSES);
    let another = take(&pair, &claim("notices that the gate is down", TTL)).await;
    let hold = take(&pair, &ours).await;
    drop(wake);
    assert_eq!(pair.release(&another).await.unwrap(), Released::Released);
    assert_eq!(pair.release(&hold).await.unwrap(), Released::Released);
    gate.becomes(WELL);
    gate.inner.release(&stranger).await.unwrap();
    let clock = Clock::system();
    let end = clock.now().after(SOON);
    loop {
        let state = gate.look(&ours.key).await.unwrap();
        if state.holders.is_empty() && state.waiters == Some(0) {
            break;
        }
        assert!(clock.now() < end, "the gate waits for a caller that is gone: {state:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A lease that several holds share is kept alive by the others, so the end of the ttl frees nothing in it.
#[tokio::test]
async fn the_part_in_a_store_that_does_not_free_it_alone_is_freed_after_an_outage_of_many_ttls() {
    let (gate, authority) = (Unsteady::with(|gate| gate.expires_alone = false), Unsteady::new());
    let pair = Paired::builder(gate.clone(), authority).build().unwrap();
    let ttl = Duration::from_millis(100);
    let hold = take(&pair, &claim("shared lease", ttl)).await;
    gate.becomes(REFUSES);
    // On a busy machine the ttl may be over.
    pair.release(&hold).await.unwrap();
    tokio::time::sleep(ttl * 10).await;
    gate.becomes(WELL);
    gate.until_it_has_freed(1).await;
}
