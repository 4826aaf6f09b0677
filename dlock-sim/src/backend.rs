//! The client of the model store: a [`Backend`], whose requests go through the world's network.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Claim, Clock, Error, Fencing, Health, Hold, LockKey, LockState, Profile, Queue, Released, Result, Signal, Standing,
    TtlRange, Validity, Wake, WakeStyle,
};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::store::{HoldOf, Lie, Taken};
use crate::world::{Shared, World};

/// A client in one process.
pub(crate) struct Model {
    world: Shared,
    process: u32,
    clock: Clock,
    profile: Profile,
    lie: Lie,
}

enum Answer {
    Granted(u64),
    Contended(Duration, Option<oneshot::Receiver<()>>),
    Guarded(Duration),
}

impl Model {
    pub(crate) fn new(world: Shared, process: u32, clock: Clock, tells: bool) -> Self {
        let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(86_400));
        let profile = Profile::new("model", ttl).with(|profile| {
            profile.fencing = Fencing::Monotonic;
            profile.wake = match tells {
                true => WakeStyle::Hint,
                false => WakeStyle::Poll { from: Duration::from_millis(20), to: Duration::from_millis(500) },
            };
        });
        let lie = world.with(|world| world.store.lie);
        Self { world, process, clock, profile, lie }
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

fn won(hold: &Hold) -> HoldOf {
    hold_of(&hold.claim, hold.token.map_or(0, std::num::NonZeroU64::get))
}

impl Backend for Model {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let (from, hold) = (self.clock.now(), hold_of(claim, 0));
            let listens = self.profile.wake == WakeStyle::Hint && queue != Queue::Leave;
            let answer = self.ask("acquire", move |world, number| {
                match world.store.acquire(hold, number, world.now) {
                    Taken::Granted { token } => Answer::Granted(token),
                    Taken::Guarded { left } => Answer::Guarded(left),
                    Taken::Contended { lease_left } => {
                        Answer::Contended(lease_left, listens.then(|| world.store.listen(hold.key)))
                    }
                }
            });
            Ok(match answer.await? {
                Answer::Granted(token) => Attempt::Acquired(Hold::new(claim.clone(), token, self.validity(from, claim.ttl))?),
                Answer::Guarded(left) => {
                    return Err(Error::outage("the server has restarted, and waits for old leases").with_retry_after(Some(left)));
                }
                Answer::Contended(left, news) => {
                    let wake = match news {
                        None => Wake::poll(),
                        Some(news) => Wake::on(async move {
                            news.await.map(|()| Signal::Ask).map_err(|_| Error::outage("no news come any more"))
                        }),
                    };
                    Attempt::Contended(wake.lease_left(left).ask_by(self.clock.now().after(left)))
                }
            })
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
                let (is_owner, listeners) = world.store.release(hold, number, world.now);
                world.tell(listeners);
                is_owner
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
}
