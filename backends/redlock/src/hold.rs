//! What happens to a hold, and to a claim that is given up: each step by a majority, and sent to every node.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Hold, LockKey, Note, Released, Result, Standing, Validity};
use futures::future::join;

use super::attempt::{Round, is_one};
use super::node::{Link, Node};
use super::round::{Patience, Unable, ask};
use super::scripts::SCRIPTS;
use super::tally::{Count, Undone, decided, majority, shortage};
use super::{Redlock, millis};
use dlock_redis::internal::connection::{call, is_unknown_script, on};
use dlock_redis::internal::fault;
use dlock_redis::internal::in_batches;
use dlock_redis::internal::layout::{self, Name};
use dlock_redis::internal::scripts::{Lua, MARK, SCRIPTS as SINGLE};

impl Redlock {
    pub(super) async fn renew_all<'a>(&self, holds: &'a [&'a Hold]) -> Vec<Result<Standing>> {
        in_batches(holds, |batch| self.renew_batch(batch)).await
    }

    async fn renew_batch(&self, holds: &[&Hold]) -> Result<Vec<Result<Standing>>> {
        let rounds = holds.iter().map(|hold| Ok((hold.claim.clone(), round_of(hold)?))).collect::<Result<Vec<_>>>()?;
        let rounds = Arc::new(rounds);
        let patience = holds.iter().map(|hold| hold.claim.ttl).min().map_or(Patience::FIRST, Patience::of_renewal);
        let nodes = self.nodes.len();
        let from = self.clock.now();
        let mut asked = ask(&self.nodes, 0..nodes, patience, move |node, link| {
            let rounds = rounds.clone();
            async move { renew_on(&node, &link, &rounds).await }
        })?;
        let (mut counts, mut unable) = (vec![Count::default(); holds.len()], Vec::new());
        while counts.iter().any(|count| count.decision(nodes).is_none())
            && let Some((_, renewed)) = asked.next().await
        {
            match renewed {
                Ok(renewed) => {
                    counts.iter_mut().zip(renewed).for_each(|(count, renewed)| match renewed {
                        Ok(renewed) => count.add(renewed),
                        Err(error) => unable.push(error.into()),
                    });
                }
                Err(why) => unable.push(why),
            }
        }
        let standing = |(hold, count): (&&Hold, &Count)| match decided(count, nodes, &unable)? {
            true => Ok(Standing::Renewed(Validity { from, granted: hold.claim.ttl })),
            false => Ok(Standing::Lost),
        };
        Ok(holds.iter().zip(&counts).map(standing).collect())
    }

    pub(super) async fn free(&self, hold: &Hold) -> Result<Released> {
        let round = round_of(hold)?;
        let nodes = self.nodes.len();
        let known = |count: &Count| count.decision(nodes).is_some();
        let value = round.value.clone();
        let (count, unable) =
            self.undo(&hold.claim, &SINGLE.release, value, 0..nodes, known, BootInstant::NEVER).await?;
        Ok(match decided(&count, nodes, &unable)? {
            true => Released::Released,
            false => Released::NotOwner,
        })
    }

    /// Takes one round back from these nodes. Waits until so many have said so, but not beyond that moment. A node that
    /// cannot be reached keeps it to the end of the ttl.
    pub(super) async fn give_back(
        &self,
        claim: &Arc<Claim>,
        round: &Round,
        which: impl Iterator<Item = usize>,
        awaited: usize,
        until: BootInstant,
    ) -> Result<()> {
        let heard = |count: &Count| count.heard() >= awaited;
        // It is sent, which is what counts: nobody hears how it went.
        self.undo(claim, &SINGLE.release, round.value.clone(), which, heard, until).await.map(drop)
    }

    /// Takes everything of this owner back.
    pub(super) async fn give_up(&self, claim: &Arc<Claim>) -> Result<()> {
        let nodes = self.nodes.len();
        // A minority may be away for long; what it has of ours stands in nobody's way, and not beyond the ttl.
        let gone = |count: &Count| count.heard() >= majority(nodes);
        let whose = claim.owner.to_hex();
        let (count, unable) = self.undo(claim, &SCRIPTS.abandon, whose, 0..nodes, gone, BootInstant::NEVER).await?;
        if gone(&count) { Ok(()) } else { Err(shortage(nodes, &unable).error) }
    }

    /// Sends a release of some kind to these nodes, whatever they said before, and waits for them all, but not long; a
    /// little longer for enough of them, but not beyond `until`.
    async fn undo(
        &self,
        claim: &Arc<Claim>,
        lua: &'static Lua,
        whose: String,
        which: impl Iterator<Item = usize>,
        enough: impl Fn(&Count) -> bool,
        until: BootInstant,
    ) -> Result<(Count, Vec<Unable>)> {
        let short = self.clock.now().after(Patience::of(claim.ttl).answer.min(BRIEFLY));
        let (claim, whose) = (claim.clone(), Arc::<str>::from(whose));
        let request = move |node: Arc<Node>, link: Arc<Link>| {
            let (claim, whose) = (claim.clone(), whose.clone());
            async move { undo_on(&node, &link, &claim, lua, &whose).await }
        };
        let mut asked = ask(&self.nodes, which, Patience::UNHURRIED, request)?.insist();
        let (mut count, mut unable) = (Count::default(), Vec::new());
        loop {
            // Each node's own time is bounded too.
            let until = if enough(&count) { short } else { until.max(short) };
            match asked.next_until(&self.clock, until).await {
                Some((_, Ok(undone))) => {
                    count.add(undone);
                    if undone == Undone::Gone {
                        let text =
                            "the lock is gone from a Redlock node, and whether this release has freed it is not known";
                        unable.push(Error::outage(text).into());
                    }
                }
                Some((_, Err(why))) => unable.push(why),
                None => break,
            }
        }
        let late = || Unable::silent("a Redlock node did not answer in time".into());
        unable.extend((0..asked.pending()).map(|_| late()));
        Ok((count, unable))
    }

    /// What a majority of the nodes has under the lock's name, and for how long still; `None` where no value has one.
    pub(super) async fn majority_value(&self, key: &LockKey) -> Result<Option<(Vec<u8>, Option<Duration>)>> {
        let nodes = self.nodes.len();
        let asked_for = key.clone();
        let mut asked = ask(&self.nodes, 0..nodes, Patience::FIRST, move |node, link| {
            let key = asked_for.clone();
            async move {
                let ask = |what: &str| {
                    let mut command = Cmd::new();
                    command.arg(what).arg(Name(&key));
                    command
                };
                match &node.pipeline(&link, [ask("GET"), ask("PTTL")]).await?[..] {
                    [Value::Nil, _] => Ok(None),
                    [Value::BulkString(value), Value::Int(left)] => {
                        Ok(Some((value.clone(), u64::try_from(*left).ok().map(Duration::from_millis))))
                    }
                    [Value::BulkString(_), other] | [other, ..] => Err(fault::unexpected(other)),
                    [] => Err(fault::unexpected(&Value::Nil)),
                }
            }
        })?;
        let (mut free, mut values, mut unable) = (0, Vec::<(Vec<u8>, Option<Duration>)>::new(), Vec::new());
        loop {
            let same = |value: &&(Vec<u8>, Option<Duration>)| {
                values.iter().filter(|other| owner_part(&other.0) == owner_part(&value.0)).count()
            };
            let most = values.iter().max_by_key(same);
            let count = most.as_ref().map_or(0, same);
            if let Some(most) = most.filter(|_| count >= majority(nodes)) {
                return Ok(Some(most.clone()));
            }
            // With all who have not answered, nobody has a majority.
            let unknown = nodes - free - values.len();
            if count + unknown < majority(nodes) {
                return Ok(None);
            }
            match asked.next().await {
                Some((_, Ok(Some(value)))) => values.push(value),
                Some((_, Ok(None))) => free += 1,
                Some((_, Err(why))) => unable.push(why),
                None => return Err(shortage(nodes, &unable).error),
            }
        }
    }
}

/// For what is waited for beyond an answer that decides.
const BRIEFLY: Duration = Duration::from_millis(150);

fn round_of(hold: &Hold) -> Result<Arc<Round>> {
    let session = hold.session.clone().and_then(|session| session.downcast::<Round>().ok());
    session.ok_or_else(|| Error::new(ErrorKind::Internal, "a hold of another backend was given to Redlock"))
}

async fn renew_on(node: &Node, link: &Link, rounds: &[(Arc<Claim>, Arc<Round>)]) -> Result<Vec<Result<bool>>> {
    let mut answers = Vec::new();
    // The second time by the script's text, if the server has lost it.
    for whole in [false, true] {
        let renew = |(claim, round): &(Arc<Claim>, Arc<Round>)| {
            call(&SINGLE.renew, whole, &|command: &mut Cmd| {
                on(command, Name(&claim.key)).arg(&round.value).arg(millis(claim.ttl));
            })
        };
        answers = node.pipeline(link, rounds.iter().map(renew)).await?;
        if !answers.iter().any(is_unknown_script) {
            break;
        }
    }
    Ok(answers.iter().map(is_one).collect())
}

/// Over the present runtime's connection, and over the one that the attempt went over if that is another: two have no
/// order, and on a slow node the attempt may be on its way still.
async fn undo_on(node: &Arc<Node>, link: &Arc<Link>, claim: &Claim, lua: &Lua, whose: &str) -> Result<Undone> {
    let undo = |link: Arc<Link>| {
        let build = |command: &mut Cmd| {
            on(command, Name(&claim.key)).arg(whose);
        };
        async move { is_one(&node.script(&link, lua, build).await?) }
    };
    let origin = claim.origin.and_then(|runtime| node.link_of(runtime)).filter(|origin| !Arc::ptr_eq(origin, link));
    let Some(origin) = origin else { return undo(link.clone()).await.map(Undone::from) };
    // That runtime may be blocked, or end at this moment.
    let limit = node.clock().now().after(BRIEFLY);
    let (here, there) = join(undo(link.clone()), node.clock().timeout_at(limit, undo(origin))).await;
    undone_by_two(here, there)
}

/// What one node's two answers come to; of the second there may be none.
fn undone_by_two(here: Result<bool>, there: Option<Result<bool>>) -> Result<Undone> {
    match (here, there) {
        (_, Some(Ok(true))) => Ok(Undone::Yes),
        // It may be the other request that freed it.
        (Ok(false), None | Some(Err(_))) => Ok(Undone::Gone),
        (here, _) => here.map(Undone::from),
    }
}

/// The owner, and the blank after it.
fn owner_part(value: &[u8]) -> &[u8] {
    value.get(..33).unwrap_or(value)
}

/// The note in a value, without the round.
pub(super) fn note_of(value: &[u8]) -> Result<Note> {
    let value = value.strip_suffix(MARK.as_bytes()).unwrap_or(value);
    let round = value
        .iter()
        .rposition(|byte| *byte == b'@')
        .filter(|at| value[..*at].ends_with(b" ") && *at > 33 && value[at + 1..].iter().all(u8::is_ascii_hexdigit));
    layout::note_of(round.map_or(value, |at| &value[..at - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;

    #[test]
    fn what_another_unanswered_request_may_have_freed_is_not_told_as_somebody_elses() {
        let failed = || Err(Error::outage("reset"));
        for there in [None, Some(failed())] {
            assert_eq!(undone_by_two(Ok(false), there).unwrap(), Undone::Gone);
        }
        assert_eq!(undone_by_two(Ok(false), Some(Ok(false))).unwrap(), Undone::No);
        for (here, there) in [(Ok(true), None), (Ok(false), Some(Ok(true))), (failed(), Some(Ok(true)))] {
            assert_eq!(undone_by_two(here, there).unwrap(), Undone::Yes);
        }
        assert!(undone_by_two(failed(), Some(Ok(false))).is_err());
        let mut count = Count::default();
        for said in [Undone::No, Undone::No, Undone::Gone, Undone::Gone, Undone::Gone] {
            count.add(said);
        }
        assert_eq!((count.decision(5), count.heard()), (None, 5));
    }

    #[test]
    fn a_note_is_read_back_without_its_round() {
        let key = LockKey::new("shop", Key::text("k")).unwrap();
        let claim = Claim::new(key, Duration::from_secs(1), "shop::deduct").unwrap();
        let plain = format!("{} {}", claim.owner.to_hex(), claim.note);
        for value in [plain.clone(), format!("{plain} @1f"), format!("{plain} @1f{MARK}"), format!("{plain}{MARK}")] {
            assert_eq!(note_of(value.as_bytes()).unwrap(), claim.note, "{value}");
        }
        let empty = format!("{}  @1", claim.owner.to_hex());
        assert_eq!(note_of(empty.as_bytes()).unwrap().as_str(), "");
        assert!(note_of(b"foreign @1").is_err());
    }
}
