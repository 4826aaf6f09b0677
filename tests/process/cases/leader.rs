//! Leadership: the next leader comes after a crash, a pause and a resignation, and observers see each change, in order.

use std::time::{Duration, Instant};

use dlock::{Election, Registry, SeenLeader};
use dlock_testkit::child::Child;
use tokio::task::JoinHandle;

use crate::arena::{Arena, PATIENCE, TTL};
use crate::holder::ELECTION;

pub(super) fn kill_9_leader(arena: &Arena) {
    arena.run(async {
        let mut leader = arena.child("lead");
        let first = term(&mut leader);
        let observer = Seen::of(&arena.near().await);
        observer.has(1).await;
        let next = election(&arena.near().await);
        let campaign = tokio::spawn(next.campaign());
        let killed = Instant::now();
        leader.kill9().unwrap();
        let next = campaign.await.unwrap().unwrap();
        arena.assert_in_time(killed);
        assert!(next.term().get() > first);
        let leaders = observer.has(2).await;
        assert_eq!(leaders[1].id, Some(next.id()));
        assert_rising(&leaders);
        next.resign().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn a_stopped_leader_drops_its_body_and_leads_again_after_the_next_resigns(arena: &Arena) {
    arena.run(async {
        let mut leader = arena.child("lead");
        let first = term(&mut leader);
        let observer = Seen::of(&arena.near().await);
        observer.has(1).await;
        let stopped = Instant::now();
        leader.stop().unwrap();
        let next = election(&arena.near().await).campaign().await.unwrap();
        arena.assert_in_time(stopped);
        let second = next.term().get();
        assert!(second > first);
        observer.has(2).await;
        leader.cont().unwrap();
        // The next line: the body's further steps would stand before it.
        assert_eq!(leader.wait_line("", PATIENCE).unwrap(), "the body is dropped");
        next.check().unwrap();
        let id = next.id();
        next.resign().await.unwrap();
        assert!(term(&mut leader) > second);
        let leaders = observer.has(3).await;
        assert_eq!(leaders[1].id, Some(id));
        assert_eq!(leaders[0].note.pid(), leaders[2].note.pid(), "the first one leads again");
        assert_rising(&leaders);
        leader.kill9().unwrap();
    });
}

fn election(process: &Registry) -> Election {
    process.elect(ELECTION).ttl(TTL).poll(Duration::from_millis(100))
}

/// The term of a child that leads.
fn term(leader: &mut Child) -> u64 {
    leader.wait_line("leads ", PATIENCE).unwrap().parse().unwrap()
}

/// No leader twice in a row, and no term that falls.
fn assert_rising(leaders: &[SeenLeader]) {
    for pair in leaders.windows(2) {
        assert_ne!(pair[0].id, pair[1].id, "a change that was none: {leaders:#?}");
        assert!(pair[0].term.is_none() || pair[0].term < pair[1].term, "{leaders:#?}");
    }
}

/// The leaders that an observer has seen so far.
struct Seen {
    leaders: tokio::sync::watch::Receiver<Vec<SeenLeader>>,
    observer: JoinHandle<()>,
}

impl Seen {
    fn of(process: &Registry) -> Self {
        let mut changes = election(process).observe().unwrap();
        let (sender, leaders) = tokio::sync::watch::channel(Vec::new());
        let observer = tokio::spawn(async move {
            loop {
                // An interval without a leader is no leader.
                if let Some(leader) = changes.changed().await.unwrap() {
                    sender.send_modify(|leaders| leaders.push(leader));
                }
            }
        });
        Self { leaders, observer }
    }

    /// Waits until it has seen so many, and fails if there were more.
    async fn has(&self, count: usize) -> Vec<SeenLeader> {
        let mut leaders = self.leaders.clone();
        let wait = leaders.wait_for(|leaders| leaders.len() >= count);
        let leaders =
            tokio::time::timeout(PATIENCE, wait).await.expect("the observer sees the change").unwrap().clone();
        assert_eq!(leaders.len(), count, "{leaders:#?}");
        leaders
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.observer.abort();
    }
}
