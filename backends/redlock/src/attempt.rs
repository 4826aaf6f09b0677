//! One attempt: votes, and the token. A failed attempt is released on every node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Queue, Result, Session, Validity, Wake};

use super::Redlock;
use super::node::{Link, Node};
use super::nodes::majority;
use super::round::{Patience, ask};
use super::scripts::SCRIPTS;
use super::tally::{NodeCount, Short, Verdict, shortage};
use super::token::Token;
use dlock_redis::internal::fault;
use dlock_redis::internal::layout::LockName;
use dlock_redis::internal::scripts::{FENCE, LEAST_TOKEN, TOKEN_END};

/// After a split vote all ask again within this time, each at its own moment: long against the round trips of one
/// attempt, short against a ttl.
const SPLIT_PAUSE_MS: (u64, u64) = (10, 120);

/// After the end of a lease, a waiter asks within this many milliseconds: all waiters at once would split the vote.
const LEASE_END_JITTER_MS: u64 = 60;

/// The value of one attempt on the nodes: owner, note and round.
pub(super) struct Round {
    pub(super) value: String,
    /// All time from here on shortens the validity, also the time to connect.
    pub(super) sent: BootInstant,
}

impl Session for Round {}

impl Round {
    fn begin(claim: &Claim, sent: BootInstant) -> Arc<Self> {
        static ROUNDS: AtomicU64 = AtomicU64::new(1);
        let round = ROUNDS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { value: format!("{} {} @{round:x}", claim.owner.to_hex(), claim.note), sent })
    }
}

impl Redlock {
    /// Asks for the lock. If only silent nodes keep it from a majority, it asks again until `patience.in_all` has passed:
    /// one request waits for a silent node only briefly, and a short silence is no outage.
    pub(super) async fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let waits = matches!(queue, Queue::Join { .. });
        let patience = Patience::of(claim.ttl);
        let until = self.clock.now().after(patience.in_all);
        loop {
            let round = Round::begin(claim, self.clock.now());
            let (tally, others_wait) = self.vote(claim, &round, waits, patience).await?;
            let outcome = match tally.verdict() {
                Verdict::Won(token) => match self.grant(claim, &round, &token, patience).await {
                    Ok(hold) => {
                        self.streaks.held(&claim.key, others_wait, self.clock.now());
                        return Ok(Attempt::Acquired(hold));
                    }
                    Err(short) => Err(short),
                },
                Verdict::Held(holder, left) => {
                    let holder = Some(&*holder).filter(|holder| !holder.is_empty());
                    let soon = self.streaks.refused(&claim.key, holder, waits, self.clock.now());
                    let later = round.sent.after(left + Duration::from_millis(fastrand::u64(..LEASE_END_JITTER_MS)));
                    let wake = Wake::poll().lease_left(left);
                    Ok(wake.ask_by(if holder.is_some() { later.min(soon) } else { soon }))
                }
                Verdict::Split => {
                    self.streaks.refused(&claim.key, None, waits, self.clock.now());
                    Ok(Wake::poll())
                }
                Verdict::Short(short) => Err(short),
            };
            let silence = matches!(&outcome, Err(short) if short.by_silence);
            // Before anybody asks again. Nodes where another owner has the lock are left out, because they have nothing
            // of ours.
            let others = (0..self.nodes.len()).filter(|node| !tally.refusing.contains(node));
            // Slow nodes are asked again when a majority has come so far, or they would fall behind more and more.
            let awaited = if silence { majority(self.nodes.len()).saturating_sub(tally.refusing.len()) } else { 0 };
            self.give_back(claim, &round, others, awaited, until).await?;
            match outcome {
                Err(_) if silence && self.clock.now() < until => {}
                Ok(wake) if wake.lease_left.is_none() => {
                    let pause = Duration::from_millis(fastrand::u64(SPLIT_PAUSE_MS.0..SPLIT_PAUSE_MS.1));
                    return Ok(Attempt::Contended(wake.ask_by(self.clock.now().after(pause))));
                }
                Ok(wake) => return Ok(Attempt::Contended(wake)),
                Err(short) => return Err(short.error),
            }
        }
    }

    async fn grant(
        &self,
        claim: &Arc<Claim>,
        round: &Arc<Round>,
        token: &Token,
        patience: Patience,
    ) -> Result<Hold, Short> {
        if token.value >= TOKEN_END {
            return Err(Error::new(ErrorKind::FenceExhausted, "the fencing counter in Redis has left its range").into());
        }
        if token.value < LEAST_TOKEN {
            let text = "the fencing counter in Redis cannot be set: the server's clock is before 2005";
            return Err(Error::new(ErrorKind::FenceRegression, text).into());
        }
        if !token.is_kept(self.nodes.len()) {
            self.write_back(claim, round, token, patience).await?;
        }
        self.nodes.iter().for_each(|node| node.note(token.value));
        let validity = Validity::new(round.sent, claim.ttl);
        if validity.deadline() <= self.clock.now() {
            return Err(
                Error::outage("the Redlock nodes took longer than the ttl, so the grant has already expired").into()
            );
        }
        Ok(Hold::new(claim.clone(), token.value, validity)?.with_session(round.clone()))
    }

    /// Writes the token to nodes that do not keep it, where the lock is ours still, until a majority keeps it.
    async fn write_back(
        &self,
        claim: &Arc<Claim>,
        round: &Arc<Round>,
        token: &Token,
        patience: Patience,
    ) -> Result<(), Short> {
        let request = {
            let (claim, round, token) = (claim.clone(), round.clone(), token.value);
            move |node: Arc<Node>, link: Arc<Link>| {
                let (claim, round) = (claim.clone(), round.clone());
                async move {
                    let confirm = node.script(&link, &SCRIPTS.confirm, |command| {
                        command.arg(2).arg(LockName(&claim.key)).arg(FENCE).arg(&round.value).arg(token);
                    });
                    is_one(&confirm.await?)
                }
            }
        };
        let nodes = self.nodes.len();
        let others = (0..nodes).filter(|node| !token.kept_by.contains(node));
        let (mut count, mut unable) = (NodeCount::of(token.kept_by.len()), Vec::new());
        let mut answers = ask(&self.nodes, others, patience, request)?;
        while count.decision(nodes).is_none()
            && let Some((_, confirmed)) = answers.next().await
        {
            match confirmed {
                Ok(confirmed) => count.add(confirmed),
                Err(why) => unable.push(why),
            }
        }
        match count.decision(nodes) {
            Some(true) => Ok(()),
            Some(false) => {
                Err(Error::outage("a majority of the Redlock nodes lost the lock before it was granted").into())
            }
            None => Err(shortage(nodes, &unable)),
        }
    }
}

pub(super) fn round_of(hold: &Hold) -> Result<Arc<Round>> {
    hold.shared_session()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a hold of another backend was given to Redlock"))
}

pub(super) fn is_one(answer: &Value) -> Result<bool> {
    match answer {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        other if fault::is_wrong_type(other) => Ok(false),
        other => Err(fault::unexpected(other)),
    }
}
