//! Three servers that agree: what a hold survives.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dlock::{Clock, ErrorKind, Event, Guard, Key, Label, LockKey, Observer, Registry, Wait};
use dlock_contract::{Attempt, Backend, Queue, Released, Signal, Standing};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim_on, confirm, stand, take, token};
use dlock_testkit::servers::{Instance, ZooKeeper};
use dlock_testkit::{Mode, Proxy, lateness, until_lost, wait_until};

use crate::kit::{lock, opened};
use crate::{killed, sessions};

struct Ensemble {
    nodes: Vec<Instance>,
    /// The ways of a node, by its place among them, to the other nodes when they lead.
    ways: Vec<(usize, Proxy)>,
}

impl Ensemble {
    fn start() -> Self {
        let mut recipes = ZooKeeper::ensemble(3);
        let mut ways = Vec::new();
        for (at, recipe) in recipes.iter_mut().enumerate() {
            let (_, ports) = recipe.ensemble.as_mut().unwrap();
            for (_, (follow, _)) in ports.iter_mut().enumerate().filter(|(other, _)| *other != at) {
                let way = Proxy::start((Ipv4Addr::LOCALHOST, *follow)).unwrap();
                *follow = way.port();
                ways.push((at, way));
            }
        }
        Self { nodes: Instance::start_all(recipes).unwrap(), ways }
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("zk://{}", hosts.join(","))
    }

    /// A node that runs.
    fn living(&self) -> &Instance {
        self.nodes.iter().find(|node| node.pid().is_some()).unwrap()
    }

    /// The node that leads now.
    fn leader(&self) -> usize {
        loop {
            if let Some(leader) = ZooKeeper::leader(&self.nodes) {
                return leader;
            }
        }
    }
}

const TTL: Duration = Duration::from_secs(10);
/// The servers of a busy machine elect a leader within it.
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_hold_and_a_waiter_survive_the_leader_and_a_minority_grants_nothing() {
    let ensemble = Ensemble::start();
    at_a_server_that_lags(&ensemble).await;
    let (one, other) = (opened(&ensemble.url()).await, opened(&ensemble.url()).await);
    let key = lock("leader");
    let claim = || claim_on(&key, LONG, |_| ());
    let role = one.ready().await.unwrap().role.unwrap();
    assert!(role == "leader" || role == "follower", "{role}");
    let asked = Instant::now();
    let hold = take(&one, &claim()).await;
    let waiter = claim();
    let mut wake = stand(&other, &waiter).await;

    ensemble.nodes[ensemble.leader()].kill9().unwrap();
    let renewed = wait_until("the renewal", async || match one.renew(&[&hold]).await.remove(0) {
        Ok(Standing::Renewed(_)) => true,
        // Earlier it would be a false loss.
        Ok(_) if asked.elapsed() > LONG * 9 / 10 => panic!("no leader for the whole ttl: nothing is proven"),
        Ok(standing) => panic!("{standing:?}"),
        Err(_) => false,
    });
    renewed.await.unwrap();
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

    assert_eq!(other.release(&next).await.unwrap(), Released::Released);

    // Two of three servers are left, and the client knows all three.
    let url = ensemble.url();
    tokio::join!(
        cut_off_for_less_than_its_timeout(&url),
        cut_off_for_longer_than_its_timeout(&url),
        behind_a_waiter_that_is_killed(&url),
        expired_by_another_client(&ensemble),
    );
    let next = take(&other, &claim()).await;

    // One of three servers grants nothing, and confirms nothing.
    let second = ensemble.living();
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

/// A program with proxies of its own, and what it is told.
struct Program {
    proxies: Vec<Proxy>,
    registry: Registry,
    told: Told,
}

#[derive(Clone, Default)]
struct Told {
    failed_renewals: Arc<AtomicU64>,
    losses: Arc<AtomicU64>,
}

impl Observer for Told {
    fn on_event(&self, _: &Label, event: &Event) {
        match event {
            Event::RenewalFailed { .. } => self.failed_renewals.fetch_add(1, Ordering::SeqCst),
            Event::Lost { .. } => self.losses.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
    }
}

impl Program {
    async fn start(url: &str) -> Self {
        let (proxies, through) = Proxy::in_front_of_each(url).unwrap();
        let (registry, told) = (Registry::new(), Told::default());
        registry.observe(told.clone());
        registry.connect("ensemble", &through).await.unwrap();
        registry.set_default("ensemble").unwrap();
        Self { proxies, registry, told }
    }

    async fn take(&self, name: &'static str, ttl: Duration) -> Guard {
        let lock = self.registry.lock(Key::text(name)).ttl(ttl).wait(Wait::UpTo(TTL * 2));
        lock.acquire().await.unwrap()
    }

    fn cut_off(&self) {
        self.proxies.iter().for_each(|proxy| proxy.set(Mode::BLACKHOLE));
    }

    /// The network is there again, and knows nothing of the connections of before.
    fn connect_again(&self) {
        for proxy in &self.proxies {
            proxy.set(Mode::Pass);
            proxy.cut();
        }
    }
}

/// The timeout of the session in which holds with this ttl live: these servers tell a quarter of 500 ms too late.
fn timeout_of(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(125)
}

/// A lock that was released is free for a caller at a server that has not heard of it.
async fn at_a_server_that_lags(ensemble: &Ensemble) {
    let leader = ensemble.leader();
    let follower = (leader + 1) % ensemble.nodes.len();
    let of = |at: usize| format!("zk://{}", ensemble.nodes[at].addr());
    let (one, other) = (opened(&of(leader)).await, opened(&of(follower)).await);
    let key = lock("lag");
    let claim = || claim_on(&key, TTL, |_| ());
    // Its session is there before the way is long.
    let first = take(&other, &claim()).await;
    other.release(&first).await.unwrap();
    let hold = take(&one, &claim()).await;
    let refused = other.try_acquire(&claim(), Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{refused:?}");
    let late = Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(400) };
    let ways = || ensemble.ways.iter().filter(|(at, _)| *at == follower).map(|(_, way)| way);
    ways().for_each(|way| way.set(late));
    one.release(&hold).await.unwrap();
    let next = take(&other, &claim()).await;
    ways().for_each(|way| way.set(Mode::Pass));
    other.release(&next).await.unwrap();
}

async fn cut_off_for_less_than_its_timeout(url: &str) {
    let (program, clock, ttl) = (Program::start(url).await, Clock::system(), Duration::from_secs(5));
    let guard = program.take("short cut", ttl).await;
    program.cut_off();
    clock.sleep_until(clock.now().after(timeout_of(ttl) * 7 / 10)).await;
    let left = guard.remaining();
    guard.check().expect("lost within its ttl");
    assert!(left < ttl / 2, "it was renewed without a network");
    program.connect_again();
    let renewed = wait_until("the renewal", async || {
        guard.check().expect("lost within its ttl");
        guard.remaining() > left
    });
    renewed.await.unwrap();
    wait_until("a failed renewal", async || program.told.failed_renewals.load(Ordering::SeqCst) > 0).await.unwrap();
    guard.confirm().await.unwrap();
    assert_eq!(program.told.losses.load(Ordering::SeqCst), 0);
    guard.release().await.unwrap();
}

async fn cut_off_for_longer_than_its_timeout(url: &str) {
    lateness::watch();
    let (program, clock, ttl) = (Program::start(url).await, Clock::system(), Duration::from_secs(2));
    let other = opened(url).await;
    let guard = program.take("long cut", ttl).await;
    let waiter = claim_on(guard.key(), TTL, |_| ());
    let mut wake = stand(&other, &waiter).await;
    program.cut_off();
    let (cut, began) = (clock.now(), Instant::now());
    let lost = async {
        let (error, believed) = until_lost(began, || guard.remaining(), guard.lost()).await;
        lateness::assert_within(believed, began, "the loss");
        assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
        (clock.now(), cut.after(believed))
    };
    let granted = async {
        let Signal::Granted(next) = wake.signal.as_mut().unwrap().await.unwrap() else { panic!("no grant") };
        (next, clock.now())
    };
    let ((lost, deadline), (next, granted)) = tokio::join!(lost, granted);
    assert!(lost >= deadline, "told {lost:?}, valid until {deadline:?}");
    assert!(granted >= deadline, "the lock was granted while its holder believed in it");
    clock.sleep_until(cut.after(timeout_of(ttl) * 3 / 2)).await;
    program.connect_again();
    assert!(guard.release().await.is_err());
    wait_until("the loss", async || program.told.losses.load(Ordering::SeqCst) == 1).await.unwrap();
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
    // In a new session.
    let again = program.take("long cut", ttl).await;
    assert!(again.fence().unwrap().get() > token(&next));
    again.release().await.unwrap();
}

async fn behind_a_waiter_that_is_killed(url: &str) {
    let id = fastrand::u64(..);
    let key = LockKey::new(killed::NAMESPACE, killed::key(0, id)).unwrap();
    let (one, last) = (opened(url).await, opened(url).await);
    let claim = || claim_on(&key, TTL, |_| ());
    let hold = take(&one, &claim()).await;
    let mut child = Child::spawn("waiter", &[("ID", &id.to_string()), (killed::URL, url)]).unwrap();
    wait_until("the first waiter", async || one.look(&key).await.unwrap().waiters == Some(1)).await.unwrap();
    let waiter = claim();
    let mut wake = stand(&last, &waiter).await;
    child.kill9().unwrap();
    // Until its session ends, the dead waiter is first.
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let news = tokio::time::timeout(LONG * 2, wake.signal.as_mut().unwrap()).await;
    let Signal::Granted(next) = news.expect("nobody got the lock").unwrap() else { panic!("no grant") };
    assert!(token(&next) > token(&hold));
    assert_eq!(last.release(&next).await.unwrap(), Released::Released);
}

async fn expired_by_another_client(ensemble: &Ensemble) {
    let (proxies, url) = Proxy::in_front_of_each(&ensemble.url()).unwrap();
    let (one, other) = (opened(&url).await, opened(&ensemble.url()).await);
    let key = lock("expired");
    // It does not end by itself meanwhile.
    let long = || claim_on(&key, TTL * 3, |_| ());
    let hold = take(&one, &long()).await;
    let ended = hold.session.as_ref().unwrap().ended().unwrap();
    sessions::expire(&hold, ensemble.living(), &proxies).await;
    ended.await;
    assert!(Clock::system().now() < hold.validity.deadline(), "the end of the session was not told");
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    let next = take(&other, &long()).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
    let again = take(&one, &long()).await;
    assert!(again.group() != hold.group() && token(&again) > token(&next));
    assert_eq!(one.release(&again).await.unwrap(), Released::Released);
}
