//! Nodes that forget: they have no vote until every lease that they may have forgotten is over.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock::{Clock, ErrorKind, Registry, Wait};
use dlock_contract::{Attempt, Backend, BootInstant};
use dlock_testkit::holds::{claim, token};
use dlock_testkit::{Log, lateness, text_of};
use fastrand::Rng;

use crate::cluster::{Cluster, SECOND, SLACK, attempt, seed, win};
use crate::names::FENCE;

/// The longest ttl, and what comes on top: the part for drift, and the whole seconds in which a server counts.
const MAX_TTL: Duration = Duration::from_secs(6);
const GUARD: Duration = Duration::from_millis(7100);

/// A probe does what a caller would do.
#[tokio::test]
async fn nodes_without_votes_are_not_ready() {
    let cluster = Cluster::forgetful("?max_ttl=1m");
    let redlock = cluster.open().await;
    let error = redlock.ready().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("max_ttl"), "{error}");
    let cluster = Cluster::start();
    cluster.open().await.ready().await.unwrap();
    cluster.assert_empty_within(SLACK).await;
}

#[tokio::test]
async fn a_node_has_no_vote_until_the_longest_ttl_after_its_start() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logs = tracing::subscriber::set_default(subscriber);
    let mut rounds = 0..5;
    let (started, logged, cluster, redlock, error) = loop {
        rounds.next().expect("the nodes vote before they are asked, each time: nothing is proven");
        // A machine that starts the nodes slowly only makes the time longer.
        let (started, logged) = (Instant::now(), log.text().len());
        let cluster = Cluster::forgetful("?max_ttl=6s");
        let redlock = cluster.open().await;
        match attempt(&redlock, &claim("k", MAX_TTL)).await {
            Err(error) => break (started, logged, cluster, redlock, error),
            // The machine was so slow that the time is over.
            Ok(answer) => assert!(started.elapsed() >= MAX_TTL, "{answer:?}"),
        }
    };
    let lines_with = |text: &str| log.text()[logged..].lines().filter(|line| line.contains(text)).count();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable() && text_of(&error).contains("may have forgotten locks in a restart"), "{error}");
    cluster.assert_empty_within(SLACK).await;
    let hold = win(&redlock, &claim("k", MAX_TTL), GUARD + SLACK).await;
    assert!(started.elapsed() + SECOND > MAX_TTL, "voted after {:?}", started.elapsed());
    // A minority may not have answered yet.
    assert!((3..=5).contains(&lines_with("it has no vote until")), "{}", log.text());
    assert!((3..=5).contains(&lines_with("votes again")), "{}", log.text());
    redlock.release(&hold).await.unwrap();
    // Two of them may be without a vote.
    cluster.restart([0, 1]);
    let hold = win(&redlock, &claim("k", MAX_TTL), SLACK).await;
    redlock.release(&hold).await.unwrap();
    cluster.restart([2]);
    assert_eq!(*attempt(&redlock, &claim("k", MAX_TTL)).await.unwrap_err().kind(), ErrorKind::Outage);
    // Also for processes that never met the earlier runs.
    assert_eq!(*attempt(&cluster.open().await, &claim("k", MAX_TTL)).await.unwrap_err().kind(), ErrorKind::Outage);
}

/// The textbook case: the first holder has three of five, and one of the three forgets.
#[tokio::test]
async fn a_forgetful_node_does_not_make_two_holders() {
    let cluster = Cluster::forgetful("?max_ttl=6s");
    let (first, second) = (cluster.registry().await, cluster.open().await);
    let warm = win(&second, &claim("warm", MAX_TTL), GUARD + SLACK).await;
    second.release(&warm).await.unwrap();
    cluster.kill([3, 4]);
    let guard = first.lock("k").ttl(MAX_TTL).acquire().await.unwrap();
    cluster.restart([2, 3, 4]);
    let forgot = Instant::now();
    // Without the guard these three are a majority for any caller.
    assert_eq!(cluster.left().len(), 2, "{:?}", cluster.left());

    let believed = Arc::new(Mutex::new(BootInstant::from_nanos(0)));
    let last = believed.clone();
    let watching = tokio::spawn(async move {
        let clock = Clock::system();
        loop {
            // Read first, so that the noted hold was surely still valid then.
            let now = clock.now();
            if guard.check().is_err() {
                return guard;
            }
            *last.lock().unwrap() = now;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let mut refusals = 0;
    let other = cluster.registry().await;
    let next = loop {
        match other.lock("k").ttl(MAX_TTL).wait(Wait::None).acquire().await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        refusals += 1;
        lateness::assert_within(GUARD + MAX_TTL + SLACK, forgot, "the next grant");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let granted = Clock::system().now();
    assert!(refusals > 0, "nobody asked in time: nothing is proven");
    let guard = watching.await.unwrap();
    assert!(*believed.lock().unwrap() < granted, "two holders");
    assert!(next.fence().unwrap().get() > guard.fence().unwrap().get());
    next.release().await.unwrap();
}

/// With clocks that differ by less than the longest ttl.
#[tokio::test]
async fn a_node_that_has_forgotten_counts_above_its_clock_when_it_votes_again() {
    const MAX_TTL: Duration = Duration::from_secs(12);
    let cluster = Cluster::forgetful_with_clocks("?max_ttl=12s");
    // As if they had run for a minute, so that they vote at once.
    cluster.set_ahead(1..5, 60);
    cluster.set_ahead([0], 70);
    let one = cluster.open().await;
    // The token is the highest number of these three.
    cluster.kill([3, 4]);
    let hold = win(&one, &claim("k", MAX_TTL), SLACK).await;
    one.release(&hold).await.unwrap();
    cluster.restart([1, 2, 3, 4]);
    cluster.kill([0]);
    // It meets the nodes while they have no vote, and has not seen that token.
    let other = cluster.open().await;
    let counter = |node: usize| cluster.nodes[node].ask(&format!("GET {FENCE}")).unwrap().parse::<u64>().unwrap();
    assert!((1..5).all(|node| counter(node) < token(&hold)), "they restarted too slowly: nothing is proven");
    let next = win(&other, &claim("k", MAX_TTL), MAX_TTL + SECOND * 2 + SLACK).await;
    assert!(token(&next) > token(&hold), "{} after {}", token(&next), token(&hold));
}

/// One hold, as its holder saw it: since when, and the last instant at which it was certain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    token: u64,
    asked: BootInstant,
    from: BootInstant,
    to: BootInstant,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_forget_one_after_another_never_make_two_holders() {
    const LENGTH: Duration = Duration::from_secs(10);
    let cluster = Cluster::forgetful("?max_ttl=1s");
    let seed = seed();
    let mut restarts = 0;
    let seen = seen_while(&cluster, seed, LENGTH, async |random| {
        tokio::time::sleep(Duration::from_millis(random.u64(300..1500))).await;
        cluster.restart([random.usize(..5)]);
        restarts += 1;
    });
    let seen = seen.await;
    println!("{} holds, {restarts} restarts", seen.len());
    assert!(seen.len() > 20 && restarts > 5, "too little happened: nothing is proven");
    for pair in seen.windows(2) {
        assert!(pair[0].to <= pair[1].from, "DLOCK_SEED={seed}: two held at once: {pair:?}");
        assert!(pair[0].token < pair[1].token, "DLOCK_SEED={seed}: a later grant has no higher token: {pair:?}");
    }
    assert_tokens_rise(&seen, seed);
}

/// The most time that a slow machine gets until enough has happened to prove anything.
const LONGEST: Duration = Duration::from_secs(60);

/// All holds of three workers while something happens again and again, for so long at least; the earliest first.
pub(crate) async fn seen_while(
    cluster: &Cluster,
    seed: u64,
    length: Duration,
    mut happens: impl AsyncFnMut(&mut Rng),
) -> Vec<Seen> {
    let mut random = Rng::with_seed(seed);
    let (ledger, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let mut workers = Vec::new();
    for _ in 0..3 {
        let (registry, ledger, is_over) = (cluster.registry().await, ledger.clone(), is_over.clone());
        workers.push(tokio::spawn(work(registry, ledger, Rng::with_seed(random.u64(..)), is_over)));
    }
    let (start, mut times) = (Instant::now(), 0);
    let is_enough = |times| times > 10 && ledger.lock().unwrap().len() > 20;
    while start.elapsed() < length || (start.elapsed() < LONGEST && !is_enough(times)) {
        happens(&mut random).await;
        times += 1;
    }
    is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    let mut seen = std::mem::take(&mut *ledger.lock().unwrap());
    seen.sort_by_key(|hold: &Seen| hold.from);
    seen
}

/// Fails if a grant that was asked for after another grant has no higher token.
pub(crate) fn assert_tokens_rise(seen: &[Seen], seed: u64) {
    for (place, earlier) in seen.iter().enumerate() {
        for later in seen[place + 1..].iter().filter(|later| later.asked >= earlier.from) {
            assert!(earlier.token < later.token, "DLOCK_SEED={seed}: {later:?} after {earlier:?}");
        }
    }
    let tokens: HashSet<_> = seen.iter().map(|hold| hold.token).collect();
    assert_eq!(tokens.len(), seen.len(), "DLOCK_SEED={seed}: no token is given twice");
}

/// Holds for ttls of a second, again and again.
async fn work(registry: Registry, ledger: Arc<Mutex<Vec<Seen>>>, mut random: Rng, is_over: Arc<AtomicBool>) {
    let clock = Clock::system();
    while !is_over.load(Ordering::SeqCst) {
        let asked = clock.now();
        let Ok(guard) = registry.lock("k").ttl(SECOND).wait(Wait::UpTo(SECOND)).acquire().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let from = clock.now();
        let mut to = None;
        for _ in 0..random.u32(1..15) {
            let now = clock.now();
            if guard.check().is_err() {
                break;
            }
            to = Some(now);
            tokio::time::sleep(Duration::from_millis(random.u64(1..40))).await;
        }
        if let Some(to) = to {
            ledger.lock().unwrap().push(Seen { token: guard.fence().unwrap().get(), asked, from, to });
        }
        // It may be lost by now.
        let _ = guard.release().await;
    }
}

/// A renewal after its nodes have forgotten.
#[tokio::test]
async fn a_hold_lives_on_the_nodes_that_remember_it() {
    let cluster = Cluster::forgetful("?max_ttl=6s");
    let redlock = cluster.open().await;
    let hold = win(&redlock, &claim("k", MAX_TTL), GUARD + SLACK).await;
    let renew = async || {
        let start = Instant::now();
        loop {
            match redlock.renew(&[&hold]).await.remove(0) {
                Ok(standing) => return standing,
                Err(error) => lateness::assert_within(SLACK, start, &format!("an answer after {error}")),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    cluster.restart([0, 1]);
    assert!(matches!(renew().await, dlock_contract::Standing::Renewed(_)));
    cluster.restart([2]);
    assert_eq!(renew().await, dlock_contract::Standing::Lost);
    // It was not created again on nodes that had forgotten it.
    assert!(cluster.left().iter().all(|left| left.starts_with('3') || left.starts_with('4')), "{:?}", cluster.left());
    redlock.release(&hold).await.unwrap();
    cluster.assert_empty_within(SLACK).await;
    let next = win(&redlock, &claim("k", MAX_TTL), GUARD + SLACK).await;
    assert!(token(&next) > token(&hold));
    assert!(!matches!(attempt(&cluster.open().await, &claim("k", MAX_TTL)).await, Ok(Attempt::Acquired(_))));
}
