//! A cluster of three members, and what happens to it: a leader that dies, a majority that is down, a member that is cut
//! off from the others or silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dlock::backends::etcd::Etcd;
use dlock::{Clock, ErrorKind, Key, Registry, Wait};
use dlock_contract::{Attempt, Backend, Queue, Signal, Standing};
use dlock_testkit::holds::token;
use dlock_testkit::servers::EtcdCluster;
use dlock_testkit::{lateness, wait_until};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::faults;
use crate::server::{claim_for, lock, soon, stand};

/// Longer than an election and the way to another member.
const TTL: Duration = Duration::from_secs(60);
/// As long as the engine waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

async fn start() -> Arc<EtcdCluster> {
    Arc::new(tokio::task::spawn_blocking(EtcdCluster::start).await.unwrap().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_work_on_one_member_is_felt_by_processes_at_the_others() {
    let start = || EtcdCluster::start_with(&["--quota-backend-bytes", faults::QUOTA]);
    let cluster = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let [holders, operators, waiters] = &cluster.members[..] else { panic!("three members") };
    let (one, other) = (faults::open(holders).await, faults::open(waiters).await);
    let mut raw = faults::raw(operators).await;
    faults::compaction(&one, &other, &mut raw).await;
    faults::revocation(&one, &other, &mut raw).await;
    // The last, because the alarm stays.
    faults::no_space(&one, &other, &mut raw).await;
}

async fn blocking<T: Send + 'static>(
    cluster: &Arc<EtcdCluster>,
    work: impl FnOnce(&EtcdCluster) -> T + Send + 'static,
) -> T {
    let cluster = cluster.clone();
    tokio::task::spawn_blocking(move || work(&cluster)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_a_hold_is_unknown_and_afterwards_it_is_still_held() {
    let cluster = start().await;
    let open = async || Etcd::open(&cluster.url(), &Clock::system()).await.unwrap();
    let (one, other) = (open().await, open().await);
    let health = one.ready().await.unwrap();
    assert!(matches!(health.role.as_deref(), Some("leader" | "follower")), "{health}");
    assert_eq!(health.counts, [("members".to_owned(), 3)]);
    let key = lock("majority");
    let hold = one.try_acquire(&claim_for(&key, TTL, true), Queue::Leave).await.unwrap();
    let Attempt::Acquired(hold) = hold else { panic!("the key is new") };

    // Through the engine: it hears of the loss by the deadline that it knows itself.
    let registry = Registry::new();
    registry.connect("etcd", &cluster.url()).await.unwrap();
    registry.set_default("etcd").unwrap();
    lateness::watch();
    let short = Duration::from_secs(2);
    let guard = registry.lock(Key::text("short")).ttl(short).acquire().await.unwrap();

    // A waiter at the member that stays. Without a leader, that member ends the watch.
    let last = Etcd::open(&format!("etcd://{}", cluster.members[2].addr()), &Clock::system()).await.unwrap();
    let waits = claim_for(&key, TTL, true);
    let watch = tokio::spawn(stand(&last, &waits).await.unwrap_err().signal.unwrap());

    cluster.members[0].kill9().unwrap();
    cluster.members[1].kill9().unwrap();
    let down = Instant::now();
    guard.lost().await;
    lateness::assert_within(short, down, "the loss");

    if let Ok(answer) = timeout(PATIENCE, one.renew(&[&hold])).await {
        let error = answer.into_iter().next().unwrap().unwrap_err();
        assert!(error.is_retryable() && error.kind() == &ErrorKind::Outage, "{error}");
    }
    if let Ok(answer) = timeout(PATIENCE, other.try_acquire(&claim_for(&key, TTL, true), Queue::Leave)).await {
        let error = answer.unwrap_err();
        assert!(error.is_retryable() && error.kind() == &ErrorKind::Outage, "{error}");
    }

    match timeout(TTL, watch).await.expect("the watch goes on without a leader").unwrap() {
        Ok(news) => assert!(matches!(news, Signal::Ask), "{news:?}"),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }

    blocking(&cluster, |cluster| cluster.restart_missing().unwrap()).await;
    let standing = async || match timeout(PATIENCE, one.renew(&[&hold])).await {
        Ok(mut answer) => answer.pop().unwrap().ok(),
        Err(_) => None,
    };
    let mut renewed = None;
    let asked = wait_until("the hold can be renewed again", async || {
        renewed = standing().await;
        renewed.is_some()
    });
    asked.await.unwrap();
    assert!(matches!(renewed, Some(Standing::Renewed(_))), "{renewed:?}");
    let next = claim_for(&key, TTL, true);
    let mut refused = None;
    let asked = wait_until("the other process is answered", async || {
        let answer = timeout(PATIENCE, other.try_acquire(&next, Queue::until(soon()))).await;
        refused = answer.ok().and_then(Result::ok);
        refused.is_some()
    });
    asked.await.unwrap();
    assert!(matches!(refused, Some(Attempt::Contended(_))), "two holders");
    one.release(&hold).await.unwrap();
    let mut first = None;
    let asked = wait_until("the waiter whose watch had ended gets the lock", async || {
        if let Ok(Ok(Attempt::Acquired(got))) = timeout(PATIENCE, last.try_acquire(&waits, Queue::until(soon()))).await
        {
            first = Some(got);
        }
        first.is_some()
    });
    asked.await.unwrap();
    let first = first.unwrap();
    last.release(&first).await.unwrap();
    let Attempt::Acquired(got) = other.try_acquire(&next, Queue::until(soon())).await.unwrap() else { panic!("free") };
    assert!(token(&got) > token(&first) && token(&first) > token(&hold));
}

/// Processes that take one lock in turns, and find no other one inside.
struct Churn {
    cycles: Vec<Arc<AtomicU64>>,
    ended: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Churn {
    async fn start(url: &str, processes: usize) -> Self {
        let mut churn = Self { cycles: Vec::new(), ended: Arc::default(), tasks: JoinSet::new() };
        let (inside, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        for _ in 0..processes {
            let registry = Registry::new();
            registry.connect("etcd", url).await.unwrap();
            registry.set_default("etcd").unwrap();
            let cycles = Arc::new(AtomicU64::new(0));
            churn.cycles.push(cycles.clone());
            let (inside, last, ended) = (inside.clone(), last.clone(), churn.ended.clone());
            churn.tasks.spawn(async move {
                while !ended.load(Ordering::SeqCst) {
                    let wanted = registry.lock(Key::text("churn")).ttl(TTL).wait(Wait::UpTo(TTL));
                    // While the members change their leader, an attempt may fail.
                    let Ok(guard) = wanted.acquire().await else { continue };
                    assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                    let token = guard.fence().unwrap().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "the token did not rise");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    inside.store(false, Ordering::SeqCst);
                    // If this is not answered, the engine goes on with it.
                    let _ = guard.release().await;
                    cycles.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        churn
    }

    /// Each process gets the lock several times more.
    async fn goes_on(&self, what: &str) {
        let before: Vec<_> = self.cycles.iter().map(|cycles| cycles.load(Ordering::SeqCst)).collect();
        let gone_on = async || {
            let now = self.cycles.iter().map(|cycles| cycles.load(Ordering::SeqCst));
            now.zip(&before).all(|(now, before)| now >= before + 3)
        };
        wait_until(what, gone_on).await.unwrap();
    }

    async fn end(self) {
        self.ended.store(true, Ordering::SeqCst);
        self.tasks.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_take_turns_while_members_die_are_cut_off_and_fall_silent() {
    let cluster = start().await;
    // So many that some are with each member.
    let churn = Churn::start(&cluster.url(), 6).await;
    churn.goes_on("all members are there").await;
    let registry = Registry::new();
    registry.connect("etcd", &cluster.url()).await.unwrap();
    registry.set_default("etcd").unwrap();
    // Renewed several times while the leaders change, and longer than its ttl after the last change.
    let held_ttl = Duration::from_secs(12);
    let held = registry.lock(Key::text("held")).ttl(held_ttl).acquire().await.unwrap();

    let leader = blocking(&cluster, |cluster| cluster.leader().unwrap()).await;
    cluster.members[leader].kill9().unwrap();
    churn.goes_on("the leader is dead").await;
    blocking(&cluster, |cluster| cluster.restart_missing().unwrap()).await;
    churn.goes_on("the former leader is back").await;

    let leader = blocking(&cluster, |cluster| cluster.leader().unwrap()).await;
    cluster.cut_off(Some(leader));
    blocking(&cluster, move |cluster| cluster.wait_for_other_leader(leader).unwrap()).await;
    let last_change = tokio::time::Instant::now();
    churn.goes_on("the leader is cut off").await;
    cluster.cut_off(None);
    churn.goes_on("it is with the others again").await;

    let leader = blocking(&cluster, |cluster| cluster.leader().unwrap()).await;
    let follower = (leader + 1) % 3;
    cluster.members[follower].pause().unwrap();
    churn.goes_on("a follower is silent").await;
    cluster.members[follower].resume().unwrap();
    // A new leader gives each lease its whole ttl again. A lease that nobody keeps alive has ended two seconds after that.
    tokio::time::sleep_until(last_change + held_ttl + Duration::from_secs(2)).await;
    held.check().unwrap();
    held.release().await.unwrap();
    churn.end().await;
}
