//! `dlock leaders`: who leads, and who waits to lead.

use dlock::{Candidates, Key, Note};
use serde::Serialize;

use crate::cli::{LeadersArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::output::{note, print_json, print_table, since, words};
use crate::show::MOST_WAITERS;
use crate::store::Store;

#[derive(Debug, Serialize)]
struct SeenElection {
    election: String,
    leader: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    term: Option<u64>,
    since_ms: Option<u64>,
    hold: Option<String>,
    waiting: Option<u64>,
    waiters: Option<Vec<String>>,
}

impl SeenElection {
    fn new(election: &str, found: Candidates) -> Self {
        let leader = found.leader.as_ref();
        let note = leader.map(|leader| &leader.note);
        Self {
            election: election.to_owned(),
            leader: leader.and_then(|leader| leader.candidate()).map(Into::into),
            host: note.and_then(|note| note.host()).map(Into::into),
            pid: note.and_then(|note| note.pid()),
            term: leader.and_then(|leader| leader.term),
            since_ms: note.and_then(|note| note.since_ms()),
            hold: leader.and_then(|leader| leader.id).map(|id| id.to_string()),
            waiting: found.waiting,
            waiters: found.waiters.map(|notes| {
                let names = notes.iter().map(|note| note.site().unwrap_or(note.as_str()).to_owned());
                names.take(MOST_WAITERS).collect()
            }),
        }
    }
}

/// The elections that have a leader, by their names. The others are not in the store.
async fn led(store: &Store) -> Result<Vec<String>, Failure> {
    let mut pages = store.registry.locks().backend(&store.backend).limit(1000);
    let mut names = Vec::new();
    loop {
        let page = pages.clone().page().await?;
        let elections = page.locks.iter().filter(|lock| lock.state.note().is_some_and(Note::is_election));
        names.extend(elections.map(|lock| store.shown(lock.key.as_str()).to_owned()));
        let Some(next) = page.next else { break };
        pages = pages.after(next);
    }
    names.sort();
    Ok(names)
}

/// The exit code says whether every election has a leader.
pub(crate) async fn show(args: &StoreArgs, leaders: &LeadersArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let mut seen = Vec::new();
    let found = if leaders.names.is_empty() { led(&store).await? } else { leaders.names.clone() };
    if found.is_empty() {
        note(&format!("no election has a leader in the namespace {}", store.namespace));
    }
    for name in &found {
        let election = store.registry.elect(Key::rendered(name)).backend(&store.backend);
        seen.push(SeenElection::new(name, election.candidates().await?));
    }
    let all_led = !seen.is_empty() && seen.iter().all(|election| election.leader.is_some());
    if json {
        print_json(&seen)?;
    } else {
        let rows = seen.into_iter().map(|election| {
            let place = election.host.zip(election.pid).map(|(host, pid)| format!("{host}:{pid}"));
            let count = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            vec![
                election.election,
                election.leader.unwrap_or_else(|| "nobody".into()),
                place.unwrap_or_default(),
                count(election.term),
                election.since_ms.map(|at| words(since(at))).unwrap_or_default(),
                count(election.waiting),
                election.waiters.unwrap_or_default().join(", "),
            ]
        });
        print_table(&["ELECTION", "LEADER", "HOST", "TERM", "FOR", "WAIT", "WAITERS"], rows)?;
    }
    Ok(if all_led { Exit::OK } else { Exit::NO })
}
