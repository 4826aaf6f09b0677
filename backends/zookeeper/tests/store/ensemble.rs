//! Three servers that agree: what a hold survives.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{claim_on, stand, take, token};
use dlock_testkit::servers::{Instance, ZooKeeper};
use dlock_testkit::wait_until;

use crate::kit::{lock, open};

struct Ensemble(Vec<Instance>);

impl Ensemble {
    fn start() -> Self {
        Self(Instance::start_all(ZooKeeper::ensemble(3)).unwrap())
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|node| node.addr().to_string()).collect();
        format!("zk://{}", hosts.join(","))
    }

    /// The node that leads now.
    fn leader(&self) -> &Instance {
        loop {
            if let Some(leader) = ZooKeeper::leader(&self.0) {
                return &self.0[leader];
            }
        }
    }
}

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_hold_and_a_waiter_survive_the_leader_and_a_minority_grants_nothing() {
    let ensemble = Ensemble::start();
    let (one, other) = (open(&ensemble.url()).await.unwrap(), open(&ensemble.url()).await.unwrap());
    let key = lock("leader");
    let claim = || claim_on(&key, TTL, |_| ());
    let role = one.ready().await.unwrap().role.unwrap();
    assert!(role == "leader" || role == "follower", "{role}");
    let hold = take(&one, &claim()).await;
    let waiter = claim();
    let mut wake = stand(&other, &waiter).await;

    let leader = ensemble.leader();
    leader.kill9().unwrap();
    wait_until("the renewal", async || matches!(one.renew(&[&hold]).await.remove(0), Ok(Standing::Renewed(_))))
        .await
        .unwrap();
    wait_until("a refusal", async || {
        matches!(other.try_acquire(&claim(), Queue::Leave).await, Ok(Attempt::Contended(_)))
    })
    .await
    .unwrap();
    wait_until("the release", async || match one.release(&hold).await {
        Ok(released) => {
            assert_eq!(released, Released::Released);
            true
        }
        Err(_) => false,
    })
    .await
    .unwrap();
    let next = loop {
        match wake.signal.as_mut().unwrap().await {
            Ok(Signal::Granted(hold)) => break hold,
            // Its connection was to the server that was killed: it asks again, as the engine does.
            _ => match other.try_acquire(&waiter, dlock_testkit::holds::until()).await {
                Ok(Attempt::Acquired(hold)) => break hold,
                Ok(Attempt::Contended(again)) => wake = again,
                _ => wake.signal = Some(Box::pin(async { Ok(Signal::Ask) })),
            },
        }
    };
    assert!(token(&next) > token(&hold));

    // One of three servers grants nothing, and confirms nothing.
    let second = ensemble.0.iter().find(|node| node.pid().is_some()).unwrap();
    second.kill9().unwrap();
    for _ in 0..3 {
        let answer = tokio::time::timeout(Duration::from_secs(5), one.try_acquire(&claim(), Queue::Leave)).await;
        assert!(!matches!(answer, Ok(Ok(Attempt::Acquired(_)))), "a minority has granted a lock");
        let renewal = tokio::time::timeout(Duration::from_secs(5), other.renew(&[&next])).await;
        assert!(
            !matches!(renewal.map(|mut all| all.remove(0)), Ok(Ok(Standing::Renewed(_)))),
            "a minority has renewed"
        );
    }
}
