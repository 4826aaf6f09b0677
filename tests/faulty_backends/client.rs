//! The reference backend: a client of the reference store. Correct, but for the one lie that it may be told to tell.

mod powers;
mod steps;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock::{Clock, Error, ErrorKind, Key, LockKey, LockState, Note, Result};
use dlock_conformance::Outage;
use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Durability, Exchange, Expiry, Fencing, Health, Hold, Identity,
    Inspect, Keeps, Origin, Owner, Periods, Profile, Queue, Released, RunEnd, Settle, Standing, Tokens, TtlRange, Wake,
    WakeStyle,
};
use futures::future::BoxFuture;

use crate::lies::Lie;
use crate::server::{Answer, Server};

pub(crate) struct Client {
    server: Arc<Server>,
    id: u64,
    clock: Clock,
    profile: Profile,
    /// It would lock in another way, which the server does not admit.
    in_another_way: bool,
    memory: Mutex<Memory>,
    /// The one connection of a client that lies about sharing it.
    connection: tokio::sync::Mutex<()>,
}

/// The memory of the lies. A correct client remembers nothing.
#[derive(Default)]
struct Memory {
    refused: HashMap<String, (Owner, BootInstant)>,
    replies: VecDeque<Vec<bool>>,
    notes: HashMap<String, Note>,
    delivered: HashSet<Owner>,
    abandoned: HashSet<Owner>,
    asked_to_release: HashSet<Owner>,
    carried: HashSet<Owner>,
    /// The tokens that owners drew before they won.
    drawn: HashMap<Owner, u64>,
    /// The owners whose connection broke in place of the answer to a release.
    unanswered: HashSet<Owner>,
    /// The owners whose release never reached the store.
    swallowed: HashSet<Owner>,
    broken: bool,
    /// Many holds are being renewed.
    renewing: bool,
    /// How often the client was asked whether it offers the power.
    exchange_asked: u32,
}

impl Client {
    pub(crate) fn new(server: Arc<Server>, clock: Clock) -> Self {
        let id = server.next_client();
        let delay = if server.tells(Lie::ChangesItsMind) { id } else { 0 };
        let ttl = TtlRange::new(Duration::from_millis(100), Duration::from_secs(86_400));
        let profile = Profile::new("faulty", ttl.in_steps_of(Duration::from_millis(1))).with(|faulty| {
            faulty.expiry = server.setup.expiry;
            faulty.fencing = Fencing::Monotonic;
            faulty.fair = !matches!(server.setup.wake, WakeStyle::Poll { .. });
            (faulty.read_write, faulty.permits) = (server.setup.modes, server.setup.modes);
            faulty.wake = server.setup.wake;
            faulty.takeover_delay = Duration::from_millis(delay);
            faulty.durability = Durability::Node;
        });
        let (in_another_way, memory) = (false, Mutex::default());
        Self { server, id, clock, profile, in_another_way, memory, connection: tokio::sync::Mutex::default() }
    }

    pub(crate) fn in_another_way(server: Arc<Server>, clock: Clock) -> Self {
        Self { in_another_way: true, ..Self::new(server, clock) }
    }

    fn other_way() -> Error {
        Error::config("way", "the namespace is locked in another way")
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end(&self, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Result<Released> {
        if self.memory().swallowed.contains(&hold.claim.owner) {
            return Ok(Released::NotOwner);
        }
        let was_broken = self.memory().broken;
        let arrived = self.wire(&hold.claim.owner).await;
        // The lie about a broken connection is told of attempts.
        self.memory().broken = was_broken;
        if self.tells(Lie::ForgetsSwallowedRelease) && self.server.outage() == Some(Outage::Silent) {
            self.memory().swallowed.insert(hold.claim.owner);
        }
        arrived?;
        if self.tells(Lie::ReleasesAtSecondRequest) && self.memory().asked_to_release.insert(hold.claim.owner) {
            return Err(Error::outage("busy"));
        }
        let meets = self.memory().renewing;
        let lie = match (keep, run) {
            (Some(_), _) => Lie::KeepsInTwoSteps,
            (None, Some(_)) => Lie::EndsRunInTwoSteps,
            (None, None) => Lie::ReleasesInTwoSteps,
        };
        let claim = self.in_two_steps(lie, &hold.claim).await;
        let released = self.server.end(&claim, keep, run, self.id, self.clock.wall_ms());
        if meets && self.tells(Lie::LookEndsNeighbours) {
            self.server.state().lose_neighbours();
        }
        if meets && self.tells(Lie::LookHidesRelease) {
            return Err(Error::outage("the session was ended before it answered"));
        }
        if self.tells(Lie::ReleaseSettles) && self.server.state().working.contains(&hold.claim.owner) {
            self.server.state().settled.insert(hold.claim.owner);
        }
        self.reply().await;
        match self.server.outage() {
            Some(Outage::AnswerLost) => {
                self.memory().unanswered.insert(hold.claim.owner);
                return match self.tells(Lie::LostAnswerIsLoss) {
                    true => Ok(Released::NotOwner),
                    false => Err(Error::outage("no answer")),
                };
            }
            Some(Outage::AnswerSilent) => return Err(Error::outage("no answer")),
            _ => {}
        }
        if self.tells(Lie::ReleasesNoSecondTime) && self.memory().unanswered.contains(&hold.claim.owner) {
            return Err(Error::outage("an earlier release got no answer"));
        }
        Ok(if released { Released::Released } else { Released::NotOwner })
    }

    fn tells(&self, lie: Lie) -> bool {
        self.server.tells(lie)
    }

    /// Whether an abandon comes before what its claim has asked for, in one of the requests.
    fn is_overtaken(&self) -> bool {
        [Lie::AbandonOvertakes, Lie::AbandonOvertakesTogether, Lie::AbandonOvertakesCarried]
            .iter()
            .any(|lie| self.tells(*lie))
    }
}

impl Backend for Client {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(match () {
            () if self.tells(Lie::HostIsUrl) => "faulty://user:password@127.0.0.1:1".to_owned(),
            () if self.tells(Lie::HostIsKind) => "three servers".to_owned(),
            () => "127.0.0.1:1".to_owned(),
        })
    }

    fn identify(&self, key: &LockKey) -> Result<Identity, Error> {
        Ok(match () {
            () if self.tells(Lie::IdentityOfClient) => Identity::of(key).named(format!("{key} of {}", self.id)),
            () if self.tells(Lie::OneIdentity) => Identity::of(&LockKey::new("all", Key::text("locks"))?),
            () => Identity::of(key),
        })
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            if self.in_another_way {
                return Err(Self::other_way());
            }
            if self.tells(Lie::RefusesLongest) && claim.key.as_str().len() > 4000 {
                return Err(Error::new(ErrorKind::KeyTooLong { max: 4000 }, "too long"));
            }
            if self.tells(Lie::TooSlowForShortLeases) && claim.ttl < Duration::from_millis(900) {
                return Err(Error::outage("no answer within a fraction of the ttl"));
            }
            let quarantined_until = self.server.state().quarantined_until;
            if quarantined_until.is_some_and(|until| self.clock.now() < until) {
                return Err(Error::outage("locks may have been forgotten"));
            }
            let name = self.server.name(&claim.key);
            if self.tells(Lie::Remembers) {
                let seen = self.memory().refused.get(&name).copied();
                let published = self.server.holder(&name);
                // A release is published, what an operator does is not.
                if let Some((holder, until)) = seen
                    && self.clock.now() < until
                    && (published == Some(holder) || published.is_none() && !self.server.was_released(&name))
                {
                    return Ok(Attempt::Contended(Wake::poll()));
                }
            }
            let _connection = match self.tells(Lie::CallerKeepsConnection) {
                true => Some(self.connection.lock().await),
                false => None,
            };
            let from = self.clock.now();
            if let Err(error) = self.wire(&claim.owner).await {
                let lie = match self.server.outage() {
                    Some(Outage::Silent) => Lie::SilenceIsContention,
                    _ => Lie::OutageIsContention,
                };
                if self.tells(lie) {
                    return Ok(Attempt::Contended(Wake::poll()));
                }
                if self.tells(Lie::SaysNeverSent) {
                    self.ask(claim, queue).await;
                }
                let is_refused = self.server.outage() == Some(Outage::Refused);
                return Err(if is_refused || self.tells(Lie::SaysNeverSent) { error.never_sent() } else { error });
            }
            if self.server.outage() == Some(Outage::Late) {
                self.arrives_late(claim, queue);
                return Err(Error::outage("no answer"));
            }
            let answer = self.ask(claim, queue).await;
            self.reply().await;
            match answer {
                Answer::Conflict => Err(Error::new(ErrorKind::KeyConflict, "in use by another mode")),
                Answer::AlreadyRun => Ok(Attempt::AlreadyRun),
                Answer::Granted(grant) => {
                    self.memory().delivered.insert(claim.owner);
                    let from = self.late(Lie::CountsFromReply, claim, from);
                    Ok(Attempt::Acquired(self.hold(claim, grant, from)?))
                }
                Answer::Refused { left, .. } => {
                    let holder = self.server.holder(&name);
                    let note = self.server.state().records(&name).first().map(|record| Note::from_stored(&record.note));
                    if let Some(holder) = holder {
                        self.memory().refused.insert(name, (holder, from.after(left)));
                    }
                    let named = if self.tells(Lie::NamesTheAsker) { Some(claim.note.clone()) } else { note };
                    Ok(match self.wake(claim, answer)? {
                        Attempt::Contended(wake) => Attempt::Contended(wake.held_by(named)),
                        other => other,
                    })
                }
            }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let from = self.clock.now();
            let runtime = Origin::here();
            let foreign = holds.iter().any(|hold| hold.claim.origin != runtime);
            let owner = holds.first().map_or(Owner::from_bytes([0; 16]), |hold| hold.claim.owner);
            let failed = match self.wire(&owner).await {
                Err(error) => Some(error.to_string()),
                Ok(()) if foreign && self.tells(Lie::BoundToRuntime) => Some("the connection is gone".to_owned()),
                Ok(()) => None,
            };
            if let Some(text) = failed {
                let lost = self.tells(Lie::OutageIsLost);
                let answer = || if lost { Ok(Standing::Lost) } else { Err(Error::outage(text.clone())) };
                return holds.iter().map(|_| answer()).collect();
            }
            let (wall, alone) = (self.clock.wall_ms(), holds.len() == 1);
            self.memory().renewing = holds.len() > 20;
            let mut ours = Vec::with_capacity(holds.len());
            for (at, hold) in holds.iter().enumerate() {
                if at >= 32 && self.tells(Lie::AsksForSomeOfABatch) {
                    ours.push(true);
                    continue;
                }
                if at >= 32 && self.tells(Lie::RenewsSomeOfABatch) {
                    ours.push(self.server.holder(&self.server.name(&hold.claim.key)) == Some(hold.claim.owner));
                    continue;
                }
                let claim = self.in_two_steps(Lie::RenewsInTwoSteps, &hold.claim).await;
                ours.push(self.server.renew(&claim, self.id, wall, alone));
            }
            self.memory().replies.push_back(ours);
            if !self.tells(Lie::MixesReplies) {
                // A correct client knows which reply is whose.
                let ours = self.memory().replies.pop_back().unwrap_or_default();
                self.reply().await;
                self.memory().renewing = false;
                return self.standings(holds, &ours, from);
            }
            self.reply().await;
            let ours = self.memory().replies.pop_front().unwrap_or_default();
            self.standings(holds, &ours, from)
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, None, None))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.wire(&claim.owner).await?;
            if !self.memory().abandoned.insert(claim.owner) && self.tells(Lie::AbandonsOnce) {
                return Err(Error::new(ErrorKind::Protocol, "nothing to abandon"));
            }
            if self.tells(Lie::KeepsCarried) && self.memory().carried.contains(&claim.owner) {
                return Ok(());
            }
            let delivered = self.memory().delivered.contains(&claim.owner);
            let claim = self.in_two_steps(Lie::AbandonsInTwoSteps, claim).await;
            let (server, wall) = (self.server.clone(), self.clock.wall_ms());
            if self.is_overtaken() {
                steps::on_our_thread(move || server.abandon(&claim, delivered, wall)).await;
            } else {
                server.abandon(&claim, delivered, wall);
            }
            self.reply().await;
            Ok(())
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            self.wire(&Owner::from_bytes([0; 16])).await?;
            let mut state = self.server.look(key, self.clock.wall_ms());
            if let (true, Some(first)) = (self.tells(Lie::NoteOfFirst), state.holders.first_mut()) {
                let note = first.note.clone();
                first.note = self.memory().notes.entry(key.to_string()).or_insert(note).clone();
            }
            Ok(state)
        })
    }

    fn admits<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        let is_refused = self.in_another_way && !self.tells(Lie::AdmitsAnyWay);
        Box::pin(async move { if is_refused { Err(Self::other_way()) } else { Ok(()) } })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move {
            match self.wire(&Owner::from_bytes([0; 16])).await {
                Err(_) if self.tells(Lie::AlwaysReady) => Ok(Health::new()),
                Err(_) if self.tells(Lie::ReadyWhileConnected) && self.server.outage() == Some(Outage::Silent) => {
                    Ok(Health::new())
                }
                Ok(()) if self.tells(Lie::NeverReady) => Err(Error::outage("busy with something else")),
                answer => answer.map(|()| Health::new()),
            }
        })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        self.server.setup.modes.then_some(self as &dyn Keeps)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        self.server.setup.modes.then_some(self as &dyn Periods)
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        self.server.setup.modes.then_some(self as &dyn Tokens)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        let offered = self.server.setup.modes && self.server.setup.wake == WakeStyle::Grant;
        let asked = &mut self.memory().exchange_asked;
        *asked += 1;
        // More often than any other case asks one client.
        let withdrawn = self.tells(Lie::WithdrawsAPower) && *asked > 2;
        (offered && !withdrawn).then_some(self as &dyn Exchange)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        self.server.setup.modes.then_some(self as &dyn Batch)
    }

    fn settle(&self) -> Option<&dyn Settle> {
        (self.server.setup.expiry != Expiry::Lease).then_some(self as &dyn Settle)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
