//! The client of the model store: a [`Backend`], whose requests go through the world's network.

mod powers;
mod session;

use std::future::pending;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Error, ErrorKind, Exchange, Expiry, Fencing, Health, Hold, Keeps,
    LockKey, LockState, OncePer, Periods, Profile, Queue, Released, Result, RunsOn, Settle, Signal, Standing, Tokens,
    TtlRange, Validity, Wake, WakeStyle,
};
use dlock_store::Clock;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use self::session::Sessions;
use crate::history::{Period, What};
use crate::plan::{Lie, Lives, Offers, Waiting};
use crate::store::{Grant, HoldOf, Pushed, Taken, nanos};
use crate::world::{Shared, World};

/// A client in one process.
pub(crate) struct Model {
    world: Shared,
    process: u32,
    clock: Clock,
    profile: Profile,
    offers: Offers,
    lie: Lie,
    sessions: Sessions,
}

enum Answer {
    Granted(Grant),
    Contended(Duration, News),
    Guarded(Duration),
    Mixed,
    AlreadyRun,
}

/// The news for a waiter.
enum News {
    Nothing,
    OfRelease(oneshot::Receiver<()>),
    /// The second value: when the place in the queue was confirmed.
    OfGrant(oneshot::Receiver<Pushed>, u64),
}

impl Model {
    pub(crate) fn new(world: Shared, process: u32, clock: Clock, offers: Offers) -> Self {
        let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(86_400));
        let profile = Profile::new("model", ttl).with(|profile| {
            profile.fencing = Fencing::Monotonic;
            profile.wake = match offers.waiting {
                Waiting::Polls => WakeStyle::Poll { from: Duration::from_millis(20), to: Duration::from_millis(500) },
                Waiting::Hears => WakeStyle::Hint,
                Waiting::Queues => WakeStyle::Grant,
            };
            (profile.read_write, profile.permits, profile.fair) = (true, true, offers.is_fair());
            profile.expires_alone = offers.lives == Lives::Alone;
            if offers.lives == Lives::InOwnSession {
                profile.expiry = Expiry::Session { told: Duration::from_millis(500) };
            }
            if offers.own_thread {
                profile.runs_on = RunsOn::OwnThread;
            }
        });
        let lie = world.with(|world| world.store.lie);
        let sessions = Sessions::new(world.clone(), offers.lives);
        Self { world, process, clock, profile, offers, lie, sessions }
    }

    /// Asks for a lock, in the store. `waits`: until when, if it does.
    fn take(
        &self,
        hold: HoldOf,
        waits: Option<BootInstant>,
    ) -> impl FnMut(&mut World, u64) -> Answer + Send + Clone + 'static {
        let waiting = self.offers.waiting;
        let waits = waits.map(|until| nanos(until.since(self.clock.now())));
        move |world, number| match world.store.acquire(hold, number, world.now) {
            Taken::Granted(grant) => {
                world.grants(hold, grant.token);
                Answer::Granted(grant)
            }
            Taken::Mixed => Answer::Mixed,
            Taken::AlreadyRun => Answer::AlreadyRun,
            Taken::Guarded { left } => Answer::Guarded(left),
            // Its claim was abandoned before it came.
            Taken::Over => Answer::Contended(Duration::ZERO, News::Nothing),
            Taken::Contended { lease_left } => {
                let news = match (waiting, waits) {
                    (Waiting::Hears, Some(_)) => News::OfRelease(world.store.listen(hold.key)),
                    (Waiting::Queues, Some(time)) => {
                        let place_ends = world.now.saturating_add(time);
                        world.add(hold.process, hold.call, What::Queues { key: hold.key });
                        News::OfGrant(world.store.enqueue(hold, place_ends), world.now)
                    }
                    _ => News::Nothing,
                };
                world.serve(hold.key);
                Answer::Contended(lease_left, news)
            }
        }
    }

    /// The answer to a request that left at `from`.
    fn attempt(&self, claim: &Arc<Claim>, from: BootInstant, answer: Answer) -> Result<Attempt> {
        let (left, news) = match answer {
            Answer::Granted(grant) => {
                let hold = self.sessions.hold(claim.clone(), grant, self.validity(from, claim.ttl));
                return hold.map(Attempt::Acquired);
            }
            Answer::Guarded(left) => {
                let text = "the server has restarted, and waits for the end of old leases";
                return Err(Error::outage(text).with_retry_after(Some(left)));
            }
            Answer::Mixed => {
                let text = "the key is held in a mode that does not mix with this one";
                return Err(Error::new(ErrorKind::KeyConflict, text));
            }
            Answer::AlreadyRun => return Ok(Attempt::AlreadyRun),
            Answer::Contended(left, news) => (left, news),
        };
        let broke = |_| Error::outage("no news come any more");
        let wake = match news {
            News::Nothing => Wake::poll(),
            News::OfRelease(news) => Wake::on(async move { news.await.map(|()| Signal::Ask).map_err(broke) }),
            News::OfGrant(news, anchor) => {
                let (claim, sessions) = (claim.clone(), self.sessions.clone());
                Wake::on(async move {
                    let Pushed { grant, at } = news.await.map_err(broke)?;
                    // Counted by the store's clock since the request left; a slow clock here makes it no longer.
                    let since = Duration::from_nanos(at.saturating_sub(anchor)).mul_f64(0.99);
                    let validity = Validity::new(from.after(since), claim.ttl);
                    sessions.hold(claim, grant, validity).map(Signal::Granted)
                })
            }
        };
        Ok(Attempt::Contended(wake.lease_left(left).ask_by(self.clock.now().after(left.max(Duration::from_millis(5))))))
    }

    async fn ask<T: Send + 'static>(
        &self,
        call: u32,
        name: &'static str,
        apply: impl FnMut(&mut World, u64) -> T + Send + Clone + 'static,
    ) -> Result<T> {
        let answer = self.world.with(|world| world.send((self.process, call), name, apply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => pending().await,
        }
    }

    fn hold_of(&self, claim: &Claim, token: u64) -> HoldOf {
        let (key, owner) = (key_of(&claim.key), *claim.owner.as_bytes());
        let period = |once: &OncePer| Period { length: nanos(once.period), rerun: once.rerun };
        let once_per = claim.once_per.as_deref().map(period);
        let call = claim.note.site().and_then(|site| site.parse().ok()).unwrap_or(0);
        HoldOf { key, process: self.process, owner, token, ttl: claim.ttl, mode: claim.mode, once_per, call }
    }

    fn won(&self, hold: &Hold) -> HoldOf {
        self.hold_of(&hold.claim, token_of(hold))
    }

    fn validity(&self, from: dlock_contract::BootInstant, ttl: Duration) -> Validity {
        Validity::new(if self.lie == Lie::FromTheReply { self.clock.now() } else { from }, ttl)
    }
}

fn key_of(key: &LockKey) -> u32 {
    key.as_str().bytes().last().map_or(0, |last| u32::from(last.saturating_sub(b'a')))
}

fn token_of(hold: &Hold) -> u64 {
    hold.token.map_or(0, NonZeroU64::get)
}

fn release(world: &mut World, hold: HoldOf, number: u64) -> bool {
    let (is_owner, listeners) = world.store.release(hold, number, world.now);
    world.tell(listeners);
    world.serve(hold.key);
    is_owner
}

impl Backend for Model {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let from = self.clock.now();
            let waits = match queue {
                Queue::Join { until, .. } => Some(until),
                Queue::Leave => None,
            };
            let hold = self.hold_of(claim, 0);
            let answer = self.ask(hold.call, "acquire", self.take(hold, waits)).await?;
            self.attempt(claim, from, answer)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let from = self.clock.now();
            // Of a session that has ended nobody needs to be asked.
            let asked: Vec<_> =
                holds.iter().map(|hold| (!self.sessions.has_ended(hold)).then(|| self.won(hold))).collect();
            if asked.iter().all(Option::is_none) {
                return holds.iter().map(|_| Ok(Standing::Lost)).collect();
            }
            let call = asked.iter().flatten().next().map_or(0, |hold| hold.call);
            let renewed = self.ask(call, "renew", move |world, _| {
                let mut renew = |hold: &Option<HoldOf>| hold.is_some_and(|hold| world.store.renew(hold, world.now));
                asked.iter().map(&mut renew).collect::<Vec<_>>()
            });
            match renewed.await {
                Ok(renewed) => {
                    let standing = |(hold, renewed): (&&Hold, bool)| match renewed {
                        true => Standing::Renewed(self.validity(from, hold.claim.ttl)),
                        false => Standing::Lost,
                    };
                    holds.iter().zip(renewed).map(standing).map(Ok).collect()
                }
                Err(error) => holds.iter().map(|_| Err(error.again())).collect(),
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let (hold, gap) = (self.won(hold), self.lie == Lie::ReleaseWithGap);
            let released = self.ask(hold.call, "release", move |world, number| {
                if gap {
                    let is_owner = world.store.is_of(hold, world.now);
                    if is_owner {
                        let after = world.random.u64(3_000_000..12_000_000);
                        world.later(after, 0, move |world| {
                            let listeners = world.store.free(hold);
                            world.tell(listeners);
                        });
                    }
                    return is_owner;
                }
                release(world, hold, number)
            });
            Ok(if released.await? { Released::Released } else { Released::NotOwner })
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let hold = self.hold_of(claim, 0);
            let abandoned = self.ask(hold.call, "abandon", move |world, number| {
                let listeners = world.store.abandon(hold, number, world.now);
                world.tell(listeners);
                world.serve(hold.key);
            });
            abandoned.await
        })
    }

    fn look<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async { Ok(LockState::default()) })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async { Ok(Health::new()) })
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        self.offers.tokens.then_some(self as &dyn Tokens)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        (self.offers.exchange && self.offers.waiting == Waiting::Queues).then_some(self as &dyn Exchange)
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        self.offers.batch.then_some(self as &dyn Batch)
    }

    fn settle(&self) -> Option<&dyn Settle> {
        self.offers.settles.then_some(self as &dyn Settle)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.world.with(|world| world.closes_sessions(self.process));
        Box::pin(async {})
    }
}
