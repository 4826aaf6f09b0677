//! The identity of a node: which server it is, since when it runs, and whether it may have lost locks. Then it has no
//! vote.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::redis::{ServerErrorKind, Value};

use dlock_contract::{BootInstant, Error, ErrorKind, Result, Validity};

use dlock_redis::internal::check::{field, is_forbidden, settings, text, uptime};
use dlock_redis::internal::fault;

/// A server, as it describes itself.
#[derive(Debug)]
pub(super) struct NodeIdentity {
    /// Fresh with each start of a server.
    run_id: String,
    uptime: Duration,
    /// Whether every write is on the disk before it is answered. Then a restart loses no lock.
    remembers: bool,
}

impl NodeIdentity {
    /// From the answers to `INFO` and `CONFIG GET appendonly appendfsync`.
    pub(super) fn read(info: &Value, config: &Value) -> Result<Self> {
        if is_forbidden(info) {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "the Redis user may not run INFO, so Redlock cannot see whether the node has restarted and may have forgotten locks",
            ));
        }
        let info = text(info).ok_or_else(|| fault::unexpected(info))?;
        if field(info, "cluster_enabled") == Some("1") {
            return Err(fault::no_cluster());
        }
        let run_id = field(info, "run_id").filter(|id| !id.is_empty());
        let (Some(run_id), Some(uptime)) = (run_id, uptime(info)) else {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "a Redis whose INFO has run_id and uptime_in_seconds".into() },
                "INFO does not have run_id and uptime_in_seconds, so Redlock cannot see whether the server has restarted",
            ));
        };
        Ok(Self { run_id: run_id.into(), uptime, remembers: remembers(config)? })
    }
}

/// A server that does not answer this counts as one that forgets.
fn remembers(config: &Value) -> Result<bool> {
    if let Some(pairs) = settings(config) {
        return Ok(pairs.contains(&("appendonly", "yes")) && pairs.contains(&("appendfsync", "always")));
    }
    match config {
        Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoPerm) || is_forbidden(config) => Ok(false),
        other => Err(fault::unexpected(other)),
    }
}

/// All nodes' runs, as far as this process has met them.
#[derive(Debug)]
pub(super) struct Roster {
    guard: Duration,
    runs: Mutex<Vec<Option<ServerRun>>>,
}

#[derive(Debug)]
struct ServerRun {
    id: String,
    /// Not later than this.
    started: BootInstant,
    /// Whether this run of the server has all locks of the run before it.
    remembered: bool,
}

impl Roster {
    /// No lease lasts longer than `max_ttl`, so after that time a server has none to remember from before its start.
    pub(super) fn new(nodes: usize, max_ttl: Duration) -> Self {
        let runs = Mutex::new((0..nodes).map(|_| None).collect());
        Self { guard: max_ttl + Validity::margin(max_ttl), runs }
    }

    /// Notes who answers as this node at `now`, and gives the instant from which it has a vote. The node's run before
    /// was alive at `last_seen`.
    pub(super) fn admit(
        &self,
        node: usize,
        identity: NodeIdentity,
        now: BootInstant,
        last_seen: BootInstant,
    ) -> Result<BootInstant> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |run: &Option<ServerRun>| run.as_ref().is_some_and(|run| run.id == identity.run_id);
        if runs.iter().enumerate().any(|(other, run)| other != node && same(run)) {
            return Err(Error::config(
                "url",
                "two of the Redlock nodes are one and the same server (they have one run_id): its vote would count double",
            ));
        }
        let Some(place) = runs.get_mut(node) else { return Ok(BootInstant::NEVER) };
        // The server counts whole seconds, by a wall clock that may have been set forward since.
        let started_by_uptime = now.before(identity.uptime.saturating_sub(Duration::from_secs(1)));
        // A setting may have changed while the server ran, so it does not show how the server was started.
        let (started, remembered) = match place {
            Some(run) if run.id == identity.run_id => (run.started.min(started_by_uptime), run.remembered),
            Some(_) => (started_by_uptime.max(last_seen), identity.remembers),
            None => (started_by_uptime, identity.remembers),
        };
        *place = Some(ServerRun { id: identity.run_id, started, remembered });
        Ok(if remembered { BootInstant::from_nanos(0) } else { started.after(self.guard) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootInstant = BootInstant::from_nanos(10_000_000_000_000);
    const LONG_AGO: BootInstant = BootInstant::from_nanos(1);

    fn info(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn config(pairs: &[(&str, &str)]) -> Value {
        Value::Map(pairs.iter().map(|(name, value)| (info(name), info(value))).collect())
    }

    fn identity(run_id: &str, uptime: u64, fsync: &str) -> NodeIdentity {
        let text = format!("# Server\r\nrun_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\ncluster_enabled:0\r\n");
        NodeIdentity::read(&info(&text), &config(&[("appendonly", "yes"), ("appendfsync", fsync)])).unwrap()
    }

    fn minute() -> Roster {
        Roster::new(3, Duration::from_secs(60))
    }

    #[test]
    fn a_node_that_may_have_forgotten_votes_after_the_longest_ttl() {
        let roster = minute();
        let votes = roster.admit(0, identity("a", 10, "everysec"), NOW, LONG_AGO).unwrap();
        assert_eq!(votes, NOW.before(Duration::from_secs(9)).after(roster.guard));
        assert!(roster.admit(1, identity("b", 3600, "no"), NOW, LONG_AGO).unwrap() < NOW);
        assert!(roster.admit(2, identity("c", 0, "always"), NOW, LONG_AGO).unwrap() < NOW);
    }

    #[test]
    fn a_run_that_is_known_keeps_its_start_and_a_new_one_began_after_the_last_answer() {
        let roster = minute();
        let first = roster.admit(0, identity("a", 100, "no"), NOW, LONG_AGO).unwrap();
        let later = NOW.after(Duration::from_secs(5));
        // A wall clock that was set back does not take the vote away.
        assert_eq!(roster.admit(0, identity("a", 2, "no"), later, NOW).unwrap(), first);
        // One that was set forward does not give it early.
        assert_eq!(roster.admit(0, identity("b", 9999, "no"), later, NOW).unwrap(), NOW.after(roster.guard));
    }

    #[test]
    fn a_server_that_is_set_to_remember_while_it_runs_still_counts_as_forgetful() {
        let roster = minute();
        let votes = roster.admit(0, identity("a", 10, "everysec"), NOW, LONG_AGO).unwrap();
        assert_eq!(roster.admit(0, identity("a", 10, "always"), NOW, NOW).unwrap(), votes);
        assert!(roster.admit(0, identity("b", 0, "always"), NOW, NOW).unwrap() < NOW);
    }

    #[test]
    fn one_server_under_two_names_is_refused() {
        let roster = minute();
        roster.admit(0, identity("a", 100, "no"), NOW, LONG_AGO).unwrap();
        let error = roster.admit(1, identity("a", 100, "no"), NOW, LONG_AGO).unwrap_err();
        assert_eq!(error.kind().as_str(), "config_invalid");
        assert!(roster.admit(0, identity("a", 101, "no"), NOW, LONG_AGO).is_ok());
    }

    #[test]
    fn a_server_that_does_not_tell_who_it_is_cannot_vote() {
        let none = config(&[]);
        assert!(NodeIdentity::read(&info("redis_version:7.0.15\r\n"), &none).is_err());
        assert!(NodeIdentity::read(&info("run_id:a\r\nuptime_in_seconds:1\r\ncluster_enabled:1\r\n"), &none).is_err());
        assert!(!NodeIdentity::read(&info("run_id:a\r\nuptime_in_seconds:1\r\n"), &none).unwrap().remembers);
    }
}
