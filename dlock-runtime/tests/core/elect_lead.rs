//! The loop that runs a body on the leader alone.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_runtime::{ErrorKind, Leader, Registry, Result, current};
use tokio::task::JoinHandle;

use crate::acquire::neighbours;
use crate::support::{MS, Op, SECOND, Step, World, calm, freed, poll_once, test, until};

/// A record of the bodies of some candidates.
#[derive(Clone, Default)]
struct Bodies {
    /// The leaderships of all bodies so far, in the order of their begins.
    leaders: Arc<Mutex<Vec<Leader>>>,
    running: Arc<AtomicUsize>,
    /// The most bodies that ran when another one began.
    most_beside: Arc<AtomicUsize>,
}

/// Counts down when its body is dropped, in whatever way.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bodies {
    /// A candidate whose body never ends by itself.
    fn lead(&self, registry: &Registry) -> JoinHandle<Result<()>> {
        let bodies = self.clone();
        tokio::spawn(registry.elect("billing").lead(async move |leader| {
            let beside = bodies.running.fetch_add(1, Ordering::SeqCst);
            bodies.most_beside.fetch_max(beside, Ordering::SeqCst);
            let _running = Running(bodies.running.clone());
            assert_eq!(&current().unwrap().fence().unwrap(), leader.term());
            bodies.leaders.lock().unwrap().push(leader);
            pending().await
        }))
    }

    fn terms(&self) -> Vec<u64> {
        self.leaders.lock().unwrap().iter().map(|leader| leader.term().get()).collect()
    }

    fn last(&self) -> Leader {
        self.leaders.lock().unwrap().last().unwrap().clone()
    }

    async fn begun(self, count: usize) {
        until(&format!("{count} bodies"), || self.terms().len() >= count).await;
    }
}

#[test]
fn the_body_runs_on_one_candidate_and_ends_with_its_leadership() {
    test(async {
        let (world, other) = neighbours();
        let bodies = Bodies::default();
        let _first = bodies.lead(&world.registry);
        bodies.clone().begun(1).await;
        let _second = bodies.lead(&other.registry);
        world.pass(60 * SECOND).await;
        assert_eq!(bodies.terms().len(), 1);
        // Nothing of the first candidate reaches the store any more, as if it were cut off.
        for op in [Op::Renew, Op::Acquire, Op::Release, Op::Abandon] {
            world.store.always(op, Step::Hang);
        }
        // In steps within the margin by which a holder stops before its lease ends.
        world.pass_until(50 * MS, bodies.clone().begun(2)).await;
        assert_eq!(bodies.running.load(Ordering::SeqCst), 1);
        assert_eq!(bodies.most_beside.load(Ordering::SeqCst), 0);
        let terms = bodies.terms();
        assert!(terms[0] < terms[1], "{terms:?}");
    });
}

#[test]
fn after_a_loss_the_body_is_dropped_and_the_candidate_campaigns_again() {
    test(async {
        let world = World::new();
        let bodies = Bodies::default();
        let _candidate = bodies.lead(&world.registry);
        bodies.clone().begun(1).await;
        world.store.always(Op::Renew, Step::Fail);
        world.store.always(Op::Acquire, Step::Fail);
        world.pass(31 * SECOND).await;
        assert_eq!(bodies.running.load(Ordering::SeqCst), 0);
        assert!(bodies.last().check().unwrap_err().is_lost());
        // It goes on although the store has failed longer than any retry lasts.
        world.pass(120 * SECOND).await;
        world.store.always(Op::Renew, Step::Pass);
        world.store.always(Op::Acquire, Step::Pass);
        world.pass(30 * SECOND).await;
        bodies.clone().begun(2).await;
        assert!(bodies.terms()[1] > bodies.terms()[0]);
        assert_eq!(bodies.running.load(Ordering::SeqCst), 1);
    });
}

/// The loop can be spawned then too.
#[test]
fn bodies_may_change_what_they_share() {
    test(async {
        let world = World::new();
        let mut starts = 0;
        let leads = world.registry.elect("billing").lead(async move |leader| {
            starts += 1;
            if starts == 1 { leader.lost().await.to_string() } else { starts.to_string() }
        });
        let leads = tokio::spawn(leads);
        calm().await;
        let id = world.lock("billing").holders().await.unwrap().holders[0].id.unwrap();
        assert!(world.lock("billing").break_hold(id).await.unwrap());
        assert_eq!(world.pass_until(SECOND, leads).await.unwrap().unwrap(), "2");
    });
}

#[test]
fn a_body_that_ends_resigns_and_gives_its_output() {
    test(async {
        let (world, other) = neighbours();
        let election = world.registry.elect("billing");
        let term = election.lead(async |leader| leader.term().get()).await.unwrap();
        freed(&other, "billing").await;
        assert!(election.lead(async |leader| leader.term().get()).await.unwrap() > term);
    });
}

#[test]
fn at_a_shutdown_the_leader_resigns_at_once() {
    test(async {
        let (world, other) = neighbours();
        let bodies = Bodies::default();
        let leads = bodies.lead(&world.registry);
        bodies.clone().begun(1).await;
        let next = bodies.lead(&other.registry);
        let before = world.clock.now();
        let report = world.pass_until(MS, world.registry.shutdown(3600 * SECOND)).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        assert_eq!(leads.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        bodies.clone().begun(2).await;
        assert!(world.clock.now().since(before) < SECOND);
        next.abort();
    });
}

#[test]
fn a_shutdown_during_the_release_does_not_lose_the_output_of_a_body_that_has_ended() {
    test(async {
        let world = World::new();
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let leads = tokio::spawn(world.registry.elect("billing").lead(async |leader| leader.term().get()));
        until("the release", || world.store.calls(Op::Release) == 1).await;
        let mut shutdown = Box::pin(world.registry.shutdown(60 * SECOND));
        assert!(poll_once(&mut shutdown).is_pending());
        calm().await;
        assert!(!leads.is_finished(), "it resigns first");
        let term = world.pass_until(50 * MS, leads).await.unwrap().unwrap();
        assert!(term > 0);
        let report = world.pass_until(50 * MS, shutdown).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        assert!(world.store.calls(Op::Acquire) == 1 && world.store.calls(Op::Release) == 1);
    });
}

#[test]
fn a_candidate_ends_with_a_shutdown() {
    test(async {
        let (world, other) = neighbours();
        let leader = world.registry.elect("billing").campaign().await.unwrap();
        let bodies = Bodies::default();
        let candidate = bodies.lead(&other.registry);
        calm().await;
        other.pass_until(MS, other.registry.shutdown(SECOND)).await;
        assert_eq!(candidate.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        assert!(bodies.terms().is_empty());
        leader.resign().await.unwrap();
    });
}

#[test]
fn a_shutdown_ends_the_pause_between_two_campaigns() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Fail);
        let bodies = Bodies::default();
        let candidate = bodies.lead(&world.registry);
        world.pass(60 * SECOND).await;
        assert!(!candidate.is_finished());
        world.pass_until(MS, world.registry.shutdown(Duration::ZERO)).await;
        assert_eq!(candidate.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
    });
}

#[test]
fn an_error_that_no_campaign_can_mend_ends_the_loop() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Refuse);
        let error = world.registry.elect("billing").lead(async |_| ()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
        let error = world.registry.elect("billing").backend("none").lead(async |_| ()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BackendNotRegistered { .. }), "{error}");
    });
}

/// Otherwise nobody would lead after it, until somebody restarts the loops.
#[test]
fn a_state_that_passes_does_not_end_the_loop() {
    test(async {
        for step in [Step::ReadOnly, Step::Regressed, Step::Mixed, Step::Unknown] {
            let world = World::new();
            world.store.always(Op::Acquire, step);
            let bodies = Bodies::default();
            let candidate = bodies.lead(&world.registry);
            world.pass(60 * SECOND).await;
            assert!(!candidate.is_finished() && bodies.terms().is_empty(), "{step:?}");
            world.store.always(Op::Acquire, Step::Pass);
            world.pass_until(50 * MS, bodies.clone().begun(1)).await;
            candidate.abort();
        }
    });
}

#[test]
fn a_loop_that_is_dropped_drops_its_body_and_frees_the_lock() {
    test(async {
        let (world, other) = neighbours();
        let bodies = Bodies::default();
        let leads = bodies.lead(&world.registry);
        bodies.clone().begun(1).await;
        leads.abort();
        assert!(leads.await.unwrap_err().is_cancelled());
        assert_eq!(bodies.running.load(Ordering::SeqCst), 0);
        world.empty().await;
        freed(&other, "billing").await;
    });
}

/// A panic goes to the caller, and the next candidate comes in.
#[test]
fn a_body_that_panics_resigns() {
    test(async {
        let (world, other) = neighbours();
        let election = world.registry.elect("billing");
        let leads = tokio::spawn(election.lead(async |_| panic!("the body's own panic")));
        assert!(leads.await.unwrap_err().is_panic());
        world.empty().await;
        freed(&other, "billing").await;
    });
}
