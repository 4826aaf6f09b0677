//! The value that a majority of the nodes has under a lock's name.

use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{LockKey, Note, Result};

use super::Redlock;
use super::nodes::majority;
use super::round::{Patience, ask};
use super::tally::shortage;
use dlock_redis::internal::fault;
use dlock_redis::internal::layout::{self, LockName};
use dlock_redis::internal::scripts::MARK;

impl Redlock {
    /// The value, and for how long still; `None` where no value has a majority.
    pub(super) async fn majority_value(&self, key: &LockKey) -> Result<Option<(Vec<u8>, Option<Duration>)>> {
        let nodes = self.nodes.len();
        let asked_for = key.clone();
        let mut answers = ask(&self.nodes, 0..nodes, Patience::FIRST, move |node, link| {
            let key = asked_for.clone();
            async move {
                let ask = |what: &str| {
                    let mut command = Cmd::new();
                    command.arg(what).arg(LockName(&key));
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
            // Even with all nodes that have not answered, no value has a majority.
            let unknown = nodes - free - values.len();
            if count + unknown < majority(nodes) {
                return Ok(None);
            }
            match answers.next().await {
                Some((_, Ok(Some(value)))) => values.push(value),
                Some((_, Ok(None))) => free += 1,
                Some((_, Err(why))) => unable.push(why),
                None => return Err(shortage(nodes, &unable).error),
            }
        }
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
    layout::note_of(round.map_or(value, |at| &value[..at - 1])).ok_or_else(fault::conflict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::{Claim, Key};

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
