//! The votes of the nodes for one round of an attempt.
//!
//! If nobody else was seen, each node is asked by three commands in one request: `SET … NX`, a number from the counter,
//! and `GET`. A script that does the same costs the node twice the time. Others may come between the commands, but the
//! lock was ours when the number was drawn: before it we set it, after it we read it, and what is lost never comes back.
//! Where the lock is not free, all nodes are asked by the script, which says more.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value, cmd};
use dlock_contract::{Claim, Error, ErrorKind, Result};

use super::attempt::Round;
use super::node::{Link, Node};
use super::round::{Patience, ask};
use super::scripts::SCRIPTS;
use super::streaks::WAITER_MEMORY;
use super::tally::{Tally, Vote};
use super::{Redlock, millis};
use dlock_redis::internal::connection::on;
use dlock_redis::internal::fault;
use dlock_redis::internal::layout::{LockName, beside, in_redis};
use dlock_redis::internal::scripts::{FENCE, LEAST_TOKEN};

/// One round, as it is asked of each node.
struct Asked {
    claim: Arc<Claim>,
    round: Arc<Round>,
    process: Arc<str>,
    /// For how many µs the nodes remember that this process waits; 0 if it does not.
    remembered: u128,
    /// Leaves a free lock to processes that wait.
    gives_way: bool,
    is_noted: bool,
    /// Asks whether processes wait.
    watches: bool,
}

/// The answer of one node to the three commands.
enum Free {
    Voted(Vote),
    /// It is not free, or the counter has been forgotten.
    AskByScript,
}

impl Redlock {
    /// Asks for the lock. Returns the votes, and whether another process may wait for it.
    pub(super) async fn vote(
        &self,
        claim: &Arc<Claim>,
        round: &Arc<Round>,
        waits: bool,
        patience: Patience,
    ) -> Result<(Tally, bool)> {
        let streak = self.streaks.state(&claim.key, self.clock.now());
        let asked = Arc::new(Asked {
            claim: claim.clone(),
            round: round.clone(),
            process: self.process.clone(),
            remembered: if waits { WAITER_MEMORY.as_micros() } else { 0 },
            // A caller that does not wait would hear that a free lock is taken.
            gives_way: waits && streak.had_share,
            is_noted: streak.is_noted,
            watches: streak.gets_share,
        });
        if !streak.others
            && !streak.is_noted
            && let Some(taken) = self.take_if_free(&asked, patience).await?
        {
            return Ok(taken);
        }
        let others_wait = asked.others_may_wait();
        let request = move |node: Arc<Node>, link: Arc<Link>| {
            let asked = asked.clone();
            async move { asked.by_script(&node, &link).await }
        };
        let mut tally = Tally::new(self.nodes.len());
        let mut answers = ask(&self.nodes, 0..self.nodes.len(), patience, request)?;
        while let Some((node, vote)) = answers.next().await {
            tally.count(node, vote);
            if tally.is_decided(answers.pending()) {
                break;
            }
        }
        Ok((tally, others_wait))
    }

    /// `None`: it is not free.
    async fn take_if_free(&self, asked: &Arc<Asked>, patience: Patience) -> Result<Option<(Tally, bool)>> {
        let request = {
            let (asked, commands) = (asked.clone(), Arc::<[Cmd]>::from(asked.commands()));
            move |node: Arc<Node>, link: Arc<Link>| {
                let (asked, commands) = (asked.clone(), commands.clone());
                async move {
                    // The commands do not look at the clock.
                    if !link.is_above_clock() {
                        return Ok((Free::Voted(asked.by_script(&node, &link).await?), asked.others_may_wait()));
                    }
                    asked.by_commands(&node, &link, &commands).await
                }
            }
        };
        let (mut tally, mut others_wait, mut by_script) = (Tally::new(self.nodes.len()), false, None);
        let mut answers = ask(&self.nodes, 0..self.nodes.len(), patience, request)?;
        loop {
            let next = match by_script {
                None => answers.next().await,
                Some(until) => answers.next_until(&self.clock, until).await,
            };
            match next {
                Some((node, Ok((Free::Voted(vote), others)))) => {
                    others_wait |= others;
                    tally.count(node, Ok(vote));
                }
                // The others have as long again, also those that are being connected to.
                Some((_, Ok((Free::AskByScript, _)))) => {
                    by_script.get_or_insert_with(|| self.clock.now().after(patience.answer));
                }
                Some((node, Err(why))) => tally.count(node, Err(why)),
                None => break,
            }
            let pending = answers.pending();
            if tally.is_won()
                || if by_script.is_some() { !tally.can_be_won(pending) } else { tally.is_decided(pending) }
            {
                break;
            }
        }
        Ok((by_script.is_none() || tally.is_won()).then_some((tally, others_wait)))
    }
}

impl Asked {
    /// Whether others may wait after an answer of the script.
    fn others_may_wait(&self) -> bool {
        self.watches && !self.gives_way
    }

    /// For a lock that is free.
    fn commands(&self) -> Vec<Cmd> {
        let name = LockName(&self.claim.key);
        let (mut set, mut draw, mut get) = (cmd("SET"), cmd("INCRBY"), cmd("GET"));
        set.arg(&name).arg(&self.round.value).arg("NX").arg("PX").arg(millis(self.claim.ttl));
        draw.arg(FENCE).arg(1);
        get.arg(&name);
        let mut commands = vec![set, draw, get];
        if self.watches {
            let mut exists = cmd("EXISTS");
            exists.arg(beside(in_redis(&self.claim.key).as_bytes(), ":o"));
            commands.push(exists);
        }
        commands
    }

    async fn by_commands(&self, node: &Node, link: &Link, commands: &[Cmd]) -> Result<(Free, bool)> {
        let answers = node.pipeline(link, commands.iter().cloned()).await?;
        read_free(&answers, &self.round.value, link.votes(self.round.sent))
    }

    async fn by_script(&self, node: &Node, link: &Link) -> Result<Vote> {
        let raises = link.raises(self.round.sent);
        let take = node.script(link, &SCRIPTS.take, |command| {
            on(command, LockName(&self.claim.key)).arg(&self.round.value).arg(millis(self.claim.ttl));
            command.arg(&*self.process).arg(self.remembered).arg(self.gives_way).arg(self.is_noted).arg(raises);
        });
        let vote = read_vote(&take.await?, link.votes(self.round.sent))?;
        if raises {
            link.raised();
        }
        Ok(vote)
    }
}

/// The answers to the commands, and whether another process may wait.
fn read_free(answers: &[Value], value: &str, counts: bool) -> Result<(Free, bool)> {
    match answers {
        [Value::Nil, ..] => Ok((Free::AskByScript, false)),
        [Value::Okay, Value::Int(drawn), Value::BulkString(found), waiting @ ..] if found == value.as_bytes() => {
            let others_wait = matches!(waiting, [Value::Int(1..)]);
            let drawn = u64::try_from(*drawn).ok().filter(|drawn| *drawn >= LEAST_TOKEN);
            Ok((drawn.map_or(Free::AskByScript, |drawn| Free::Voted(Vote::Granted { drawn, counts })), others_wait))
        }
        [Value::Okay, Value::Int(_), Value::BulkString(_) | Value::Nil, ..] => {
            Err(Error::outage("a Redlock node had lost the lock before it drew a number for it"))
        }
        [Value::Okay, Value::Int(_), other, ..] | [Value::Okay, other, ..] | [other, ..] => {
            Err(fault::unexpected(other))
        }
        [] => Err(fault::unexpected(&Value::Nil)),
    }
}

fn read_vote(answer: &Value, counts: bool) -> Result<Vote> {
    let Value::Array(parts) = answer else { return Err(fault::unexpected(answer)) };
    match &parts[..] {
        [Value::Int(1), Value::Int(drawn), ..] => {
            Ok(Vote::Granted { drawn: u64::try_from(*drawn).unwrap_or_default(), counts })
        }
        [Value::Int(0), Value::Int(left), _, Value::BulkString(by)] => Ok(Vote::Refused {
            by: String::from_utf8_lossy(by).into_owned(),
            left: Duration::from_millis(u64::try_from(*left).unwrap_or_default()),
            counts,
        }),
        [Value::Int(2), ..] => Err(fault::conflict()),
        [Value::Int(3), ..] => {
            Err(Error::new(ErrorKind::CorruptState, "the lock in Redis has no lease, so it would never end"))
        }
        // This is neither a vote nor another owner's lock: nobody waits for this answer any more.
        [Value::Int(4), ..] => Err(Error::outage("a later round of the same claim reached the node first")),
        _ => Err(fault::unexpected(answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_only_if_the_lock_was_ours_when_it_was_drawn() {
        let drawn = i64::try_from(LEAST_TOKEN).unwrap();
        let text = |text: &str| Value::BulkString(text.into());
        let read = |answers: &[Value]| read_free(answers, "me @1", true);
        let is_granted = |answers: &[Value], others: bool| matches!(read(answers), Ok((Free::Voted(Vote::Granted { drawn: LEAST_TOKEN, counts: true }), wait)) if wait == others);
        assert!(is_granted(&[Value::Okay, Value::Int(drawn), text("me @1")], false));
        assert!(is_granted(&[Value::Okay, Value::Int(drawn), text("me @1"), Value::Int(0)], false));
        assert!(is_granted(&[Value::Okay, Value::Int(drawn), text("me @1"), Value::Int(1)], true));
        for gone in [text("other @1"), text("me @2"), text(""), Value::Nil] {
            assert_eq!(read(&[Value::Okay, Value::Int(drawn), gone]).err().unwrap().kind().as_str(), "outage");
        }
        for asked in
            [[Value::Nil, Value::Int(drawn), text("me @1")], [Value::Okay, Value::Int(drawn - 1), text("me @1")]]
        {
            assert!(matches!(read(&asked), Ok((Free::AskByScript, false))));
        }
        assert!(read(&[Value::Okay]).is_err() && read(&[]).is_err());
    }
}
