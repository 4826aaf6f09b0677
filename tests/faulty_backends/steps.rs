//! The client's steps in one request: the way to the store, the store's answer, the way back, and the result. Each step may
//! be the place of a lie.

use std::sync::Arc;
use std::time::Duration;

use dlock::{Error, ErrorKind, LockKey, Result};
use dlock_conformance::Outage;
use dlock_contract::{
    Attempt, BootInstant, Claim, Expiry, Hold, Owner, Queue, Session, Signal, Standing, Validity, Wake,
};
use futures::future::BoxFuture;

use super::Client;
use crate::lies::Lie;
use crate::server::{Answer, Grant, News, Server};

impl Client {
    /// The way to the store.
    pub(super) async fn wire(&self, owner: &Owner) -> Result<()> {
        // The first poll of a request of that lie spawns its task.
        if !self.is_overtaken() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if self.memory().broken {
            return Err(Error::outage("the connection is broken"));
        }
        match self.server.outage() {
            None | Some(Outage::AnswerLost | Outage::AnswerSilent | Outage::Late) => return Ok(()),
            Some(Outage::Refused) => {}
            Some(Outage::Silent) => {
                self.memory().broken = self.tells(Lie::StaysBroken);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Err(match self.tells(Lie::OwnerInError) {
            true => Error::outage(format!("no answer for {}", owner.to_hex())),
            false if self.tells(Lie::OutageIsFinal) => Error::new(ErrorKind::Internal, "no answer"),
            false => Error::outage("no answer"),
        })
    }

    /// The way back.
    pub(super) async fn reply(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pub(super) async fn ask(&self, claim: &Arc<Claim>, queue: Queue) -> Answer {
        let (server, id, wall, claim) = (self.server.clone(), self.id, self.clock.wall_ms(), claim.clone());
        if self.tells(Lie::RequestRunsOn) {
            let (caller, caller_ended) = tokio::sync::oneshot::channel::<()>();
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(25)) => {}
                    // Long enough for the abandon to overtake it on a busy machine too.
                    _ = caller_ended => tokio::time::sleep(Duration::from_millis(150)).await,
                }
                server.ask(&claim, queue, id, wall)
            });
            let answer = task.await;
            drop(caller);
            return answer.unwrap_or_else(|_| Answer::Refused {
                left: Duration::ZERO,
                ask_by: BootInstant::NEVER,
                news: None,
            });
        }
        if self.tells(Lie::AbandonOvertakes) {
            return on_our_thread(move || server.ask(&claim, queue, id, wall)).await;
        }
        if self.tells(Lie::TwoSteps) {
            let name = server.name(&claim.key);
            let free = !server.state().locks.contains_key(&name);
            if free {
                tokio::time::sleep(Duration::from_millis(3)).await;
                return Answer::Granted(server.grant(&mut server.state(), &name, &claim, id, wall));
            }
        }
        // Short leases are those of other cases, which could catch this lie by chance.
        if self.tells(Lie::DrawsTokenFirst) && claim.ttl > Duration::from_secs(60) {
            // Before the first refusal: a later owner, with a later token, may win before this one.
            let token = *self.memory().drawn.entry(claim.owner).or_insert_with(|| server.draw(&claim));
            return match server.ask(&claim, queue, id, wall) {
                Answer::Granted(grant) => {
                    server.set_token(&claim, token);
                    Answer::Granted(Grant { token, ..grant })
                }
                answer => answer,
            };
        }
        if self.tells(Lie::StartsInTwoSteps) && queue == Queue::Leave && claim.once_per.is_some() {
            // Each takes its time between the two, so that the ones before have ended by then.
            if server.is_late(&claim, id, wall) {
                return Answer::AlreadyRun;
            }
            tokio::time::sleep(Duration::from_millis(20 * id)).await;
        }
        server.ask(&claim, queue, id, wall)
    }

    pub(super) fn hold(&self, claim: &Arc<Claim>, Grant { token, slot }: Grant, from: BootInstant) -> Result<Hold> {
        let granted = self.server.stored(claim.ttl);
        let mut hold = Hold::new(claim.clone(), token, Validity::new(from, granted))?;
        hold.slot = slot;
        if self.server.setup.expiry != Expiry::Lease {
            hold = hold.with_session(Arc::new(Connection(self.server.clone(), claim.clone())));
        } else if self.server.setup.grouped {
            hold = hold.with_session(Arc::new(Lease(self.id)));
        }
        Ok(hold)
    }

    /// For lies: the attempt arrives when the network is well again, whatever its client has done since.
    pub(super) fn arrives_late(&self, claim: &Arc<Claim>, queue: Queue) {
        if !self.tells(Lie::ArrivesAfterAbandon) {
            return;
        }
        let (server, id, wall, claim) = (self.server.clone(), self.id, self.clock.wall_ms(), claim.clone());
        tokio::spawn(async move {
            while server.outage() == Some(Outage::Late) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.ask(&claim, queue, id, wall);
        });
    }

    /// For lies: the owner is compared now, and the request is done later, to the holder of that moment.
    pub(super) async fn in_two_steps(&self, lie: Lie, claim: &Arc<Claim>) -> Arc<Claim> {
        match self.later_holder(lie, &claim.key, claim.owner).await {
            Some(owner) => Arc::new(Claim::clone(claim).with(|claim| claim.owner = owner)),
            None => claim.clone(),
        }
    }

    /// The holder a moment after this owner was seen to hold the lock.
    pub(super) async fn later_holder(&self, lie: Lie, key: &LockKey, owner: Owner) -> Option<Owner> {
        let name = self.server.name(key);
        if !self.tells(lie) || self.server.holder(&name) != Some(owner) {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(3..12))).await;
        self.server.holder(&name)
    }

    /// Short leases are measured by other cases, which could catch this lie by chance.
    pub(super) fn late(&self, lie: Lie, claim: &Claim, from: BootInstant) -> BootInstant {
        if self.tells(lie) && claim.ttl > Duration::from_secs(60) { self.clock.now() } else { from }
    }

    pub(super) fn wake(&self, claim: &Arc<Claim>, answer: Answer) -> Result<Attempt> {
        let Answer::Refused { left, ask_by, news } = answer else { return Ok(Attempt::Contended(Wake::poll())) };
        let wake = match news {
            None => Wake::poll(),
            Some(news) => {
                let client = Self::new(self.server.clone(), self.clock.clone());
                let client = Self { id: self.id, ..client };
                let claim = claim.clone();
                let wake = Wake::on(async move {
                    match news.await {
                        Ok(News::Granted { grant, at }) => {
                            let from = client.late(Lie::CountsFromNews, &claim, at);
                            Ok(Signal::Granted(client.hold(&claim, grant, from)?))
                        }
                        Ok(News::GiveWay) if client.tells(Lie::CircleIsOutage) => Err(Error::outage("no lock")),
                        Ok(News::GiveWay) => Err(Error::new(ErrorKind::Conflict, "it waits for what waits for it")),
                        Ok(News::Ask) | Err(_) => Ok(Signal::Ask),
                    }
                });
                if self.tells(Lie::NoTime) { wake } else { wake.ask_by(ask_by) }
            }
        };
        let left = if self.tells(Lie::WrongUnit) { left * 1000 } else { left };
        Ok(Attempt::Contended(wake.lease_left(left)))
    }

    pub(super) fn standings(&self, holds: &[&Hold], ours: &[bool], from: BootInstant) -> Vec<Result<Standing>> {
        let answer = |hold: &&Hold, ours: &bool| {
            let from = self.late(Lie::RenewalCountsFromReply, &hold.claim, from);
            let renewed = Standing::Renewed(Validity::new(from, hold.validity.granted));
            Ok(if *ours { renewed } else { Standing::Lost })
        };
        let mut answers: Vec<_> = holds.iter().zip(ours).map(|(hold, ours)| answer(hold, ours)).collect();
        if self.tells(Lie::ReversesAnswers) {
            answers.reverse();
        }
        if self.tells(Lie::OneAnswerForGroup) && ours.iter().all(|ours| *ours) {
            answers.truncate(1);
        }
        answers
    }
}

/// The session of one hold: the store frees the lock when it ends.
struct Connection(Arc<Server>, Arc<Claim>);

impl Session for Connection {
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let mut ended = self.0.listen(self.1.owner);
        Some(Box::pin(async move {
            if !*ended.borrow_and_update() {
                let _ = ended.changed().await;
            }
        }))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.session_ended(&self.1);
    }
}

/// The lease of one client, in which all of its holds live.
struct Lease(u64);

impl Session for Lease {
    fn group(&self) -> Option<u64> {
        Some(self.0)
    }
}

/// Runs a request as a task of dlock's own thread. A task that this thread spawns itself comes before those of others.
pub(super) async fn on_our_thread<T: Send + 'static>(request: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = tokio::sync::oneshot::channel();
    dlock_store::background().unwrap().spawn(async move { drop(tell.send(request())) });
    told.await.unwrap()
}
