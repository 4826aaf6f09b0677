//! The client of the model store: a [`Backend`], whose requests go through the world's network.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, BootInstant, Claim, Clock, Error, Exchange, Fencing, Health, Hold, LockKey, LockState, Profile,
    Queue, Released, Reservation, Reserved, Result, Signal, Standing, Tokens, TtlRange, Validity, Wake, WakeStyle,
};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::plan::{Offers, Waiting};
use crate::store::{HoldOf, Lie, Pushed, Reserve, Taken, nanos};
use crate::world::{Shared, World};

/// A client in one process.
pub(crate) struct Model {
    world: Shared,
    process: u32,
    clock: Clock,
    profile: Profile,
    offers: Offers,
    lie: Lie,
}

enum Answer {
    Granted(u64),
    Contended(Duration, News),
    Guarded(Duration),
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
        });
        let lie = world.with(|world| world.store.lie);
        Self { world, process, clock, profile, offers, lie }
    }

    /// Asks for a lock, in the store. `waits`: until when, if it does.
    fn take(
        &self,
        hold: HoldOf,
        waits: Option<BootInstant>,
    ) -> impl FnMut(&mut World, u64) -> Answer + Send + Clone + 'static {
        let (process, waiting) = (self.process, self.offers.waiting);
        let waits = waits.map(|until| nanos(until.since(self.clock.now())));
        move |world, number| match world.store.acquire(hold, number, world.now) {
            Taken::Granted { token } => Answer::Granted(token),
            Taken::Guarded { left } => Answer::Guarded(left),
            // Its claim was abandoned before it came.
            Taken::Over => Answer::Contended(Duration::ZERO, News::Nothing),
            Taken::Contended { lease_left } => {
                let news = match (waiting, waits) {
                    (Waiting::Hears, Some(_)) => News::OfRelease(world.store.listen(hold.key)),
                    (Waiting::Queues, Some(time)) => {
                        let place_ends = world.now.saturating_add(time);
                        News::OfGrant(world.store.enqueue(hold, process, place_ends), world.now)
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
            Answer::Granted(token) => {
                return Ok(Attempt::Acquired(Hold::new(claim.clone(), token, self.validity(from, claim.ttl))?));
            }
            Answer::Guarded(left) => {
                let text = "the server has restarted, and waits for the end of old leases";
                return Err(Error::outage(text).with_retry_after(Some(left)));
            }
            Answer::Contended(left, news) => (left, news),
        };
        let broke = |_| Error::outage("no news come any more");
        let wake = match news {
            News::Nothing => Wake::poll(),
            News::OfRelease(news) => Wake::on(async move { news.await.map(|()| Signal::Ask).map_err(broke) }),
            News::OfGrant(news, anchor) => {
                let claim = claim.clone();
                Wake::on(async move {
                    let Pushed { token, at } = news.await.map_err(broke)?;
                    // Counted by the store's clock since the request left; a slow clock here makes it no longer.
                    let since = Duration::from_nanos(at.saturating_sub(anchor)).mul_f64(0.99);
                    let validity = Validity::new(from.after(since), claim.ttl);
                    Hold::new(claim, token, validity).map(Signal::Granted)
                })
            }
        };
        Ok(Attempt::Contended(wake.lease_left(left).ask_by(self.clock.now().after(left.max(Duration::from_millis(5))))))
    }

    async fn ask<T: Send + 'static>(
        &self,
        name: &'static str,
        apply: impl FnMut(&mut World, u64) -> T + Send + Clone + 'static,
    ) -> Result<T> {
        let answer = self.world.with(|world| world.send(self.process, name, apply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => pending().await,
        }
    }

    fn validity(&self, from: dlock_contract::BootInstant, ttl: Duration) -> Validity {
        Validity::new(if self.lie == Lie::FromTheReply { self.clock.now() } else { from }, ttl)
    }
}

fn key_of(key: &LockKey) -> u32 {
    key.as_str().bytes().last().map_or(0, |last| u32::from(last.saturating_sub(b'a')))
}

fn hold_of(claim: &Claim, token: u64) -> HoldOf {
    HoldOf { key: key_of(&claim.key), owner: *claim.owner.as_bytes(), token, ttl: claim.ttl }
}

fn release(world: &mut World, hold: HoldOf, number: u64) -> bool {
    let (is_owner, listeners) = world.store.release(hold, number, world.now);
    world.tell(listeners);
    world.serve(hold.key);
    is_owner
}

fn won(hold: &Hold) -> HoldOf {
    hold_of(&hold.claim, hold.token.map_or(0, std::num::NonZeroU64::get))
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
            let answer = self.ask("acquire", self.take(hold_of(claim, 0), waits)).await?;
            self.attempt(claim, from, answer)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let from = self.clock.now();
            let asked: Vec<_> = holds.iter().map(|hold| won(hold)).collect();
            let renewed = self.ask("renew", move |world, _| {
                asked.iter().map(|hold| world.store.renew(*hold, world.now)).collect::<Vec<_>>()
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
            let (hold, gap) = (won(hold), self.lie == Lie::ReleaseWithGap);
            let released = self.ask("release", move |world, number| {
                if gap {
                    let is_owner = world.store.is_of(hold, world.now);
                    if is_owner {
                        let after = world.random.u64(3_000_000..12_000_000);
                        world.later(after, 0, move |world| {
                            let listeners = world.store.free(hold.key);
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
            let hold = hold_of(claim, 0);
            let abandoned = self.ask("abandon", move |world, number| {
                let listeners = world.store.abandon(hold.key, hold.owner, number, world.now);
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
}

impl Tokens for Model {
    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(async move {
            let (from, held) = (self.clock.now(), won(hold));
            let reserved = self.ask("reserve", move |world, _| {
                world.store.reserve(held, u64::from(asked.tokens), asked.even_if_awaited, world.now)
            });
            Ok(match reserved.await? {
                Reserve::Tokens(first) => Reserved::Tokens { first, validity: self.validity(from, hold.claim.ttl) },
                Reserve::Awaited => Reserved::Awaited,
                Reserve::Lost => Reserved::Lost,
            })
        })
    }
}

impl Exchange for Model {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let (from, held, mut take) = (self.clock.now(), won(hold), self.take(hold_of(next, 0), Some(until)));
            let answer =
                self.ask("release to next", move |world, number| (release(world, held, number), take(world, number)));
            let (is_owner, answer) = answer.await?;
            let released = if is_owner { Released::Released } else { Released::NotOwner };
            Ok((released, Some(self.attempt(next, from, answer)?)))
        })
    }
}
