//! Several locks of one slot in one request: taken, and renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dlock::fenced::redis as fenced;
use dlock::{ErrorKind, Fence, Key, Registry, Wait};
use dlock_contract::{Backend, Batch, Hold, Released, Standing, Together};
use dlock_testkit::Mode;
use dlock_testkit::holds::{claim, confirm, take, token};
use dlock_testkit::lateness;
use dlock_testkit::servers::RedisCluster;
use redis::cluster_routing::Slot;

use super::cluster::{Move, cluster, key_at};
use super::{MS, SECOND, blocking, name, open, standing_soon};

const LIMIT: Duration = Duration::from_secs(30);

/// So many keys in each of so many slots.
fn keys(slots: usize, each: usize) -> Vec<Vec<String>> {
    let mut found: HashMap<Slot, Vec<String>> = HashMap::new();
    let wanted: Vec<Slot> = (0..slots).map(|n| Slot::for_key(name(&format!("wanted{n}")))).collect();
    for key in (0..).map(|n: u32| format!("{n}")) {
        let slot = Slot::for_key(name(&key));
        if wanted.contains(&slot) {
            let keys = found.entry(slot).or_default();
            if keys.len() < each {
                keys.push(key);
            }
            if found.len() == slots && found.values().all(|keys| keys.len() == each) {
                break;
            }
        }
    }
    found.into_values().collect()
}

/// How often scripts were called, at all servers.
fn scripts(cluster: &RedisCluster) -> u64 {
    let calls = |info: &str| {
        let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_eval"));
        lines.map(|line| line.split_once("calls=").unwrap().1.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    cluster.nodes.iter().map(|node| -> u64 { calls(&node.ask("INFO commandstats").unwrap()) }).sum()
}

fn left(cluster: &RedisCluster, key: &str) -> i64 {
    cluster.ask_owner(&name(key), &format!("PTTL {}", name(key))).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_keys_of_a_cluster_are_locked_and_renewed_at_once() {
    let cluster = cluster(3, 0).await;
    keys_of_one_slot_are_one_request(&cluster).await;
    keys_of_several_slots_are_one_after_another(&cluster).await;
    holds_of_one_slot_are_renewed_by_one_script(&cluster).await;
    holds_on_their_way_are_renewed_one_by_one(&cluster).await;
    a_fenced_write_that_lies_in_two_slots_is_told(&cluster).await;
    a_silent_server_holds_up_no_other(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_short_lease_cuts_off_the_renewal_of_no_other() {
    let cluster = Arc::new(blocking(|| RedisCluster::start(3, 0, true, &[]).unwrap()).await);
    let redis = open(&cluster.url()).await;
    let keys = [0, 1].map(|node| key_at(&cluster, node));
    // The servers learn the script.
    for key in &keys {
        let warm = take(&redis, &claim(key, LIMIT)).await;
        assert!(matches!(confirm(&redis, &warm).await, Standing::Renewed(_)));
        redis.release(&warm).await.unwrap();
    }
    let short = take(&redis, &claim(&keys[0], 1200 * MS)).await;
    let long = take(&redis, &claim(&keys[1], LIMIT)).await;
    // More than a sixth of the short lease.
    for proxy in &cluster.proxies {
        proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: 400 * MS });
    }
    let answers = redis.renew(&[&short, &long]).await;
    assert!(matches!(answers[1], Ok(Standing::Renewed(_))), "{:?}", answers[1]);
    // Alone it waits too: there is nobody whose answer it holds up. It may be over by now.
    let alone = redis.renew(&[&short]).await.remove(0);
    assert!(alone.is_ok(), "{alone:?}");
}

async fn registry(cluster: &RedisCluster) -> Registry {
    let registry = Registry::new();
    registry.connect("redis", &cluster.url()).await.unwrap();
    registry.set_default("redis").unwrap();
    registry.configure(|defaults| defaults.namespace = "test".into()).unwrap();
    registry
}

async fn keys_of_one_slot_are_one_request(cluster: &Arc<RedisCluster>) {
    let keys = keys(1, 4).remove(0);
    let registry = registry(cluster).await;
    let all = || {
        let keys = keys.iter().map(|key| Key::new().value(key.as_str()));
        registry.lock_all(keys).ttl(LIMIT).wait(Wait::UpTo(LIMIT))
    };
    // The servers learn the scripts.
    all().acquire().await.unwrap().release().await.unwrap();
    let before = scripts(cluster);
    let guards = all().acquire().await.unwrap();
    assert_eq!(scripts(cluster) - before, 1);
    let tokens: Vec<_> = guards.held().map(|held| held.fence().unwrap().get()).collect();
    assert!(tokens.windows(2).all(|pair| pair[1] == pair[0] + 1), "{tokens:?}");

    let other = open(&cluster.url()).await;
    let claims: Vec<_> = keys.iter().map(|key| claim(key, LIMIT)).collect();
    assert!(matches!(other.try_acquire_all(&claims).await.unwrap(), Together::Contended));
    guards.release().await.unwrap();
    let Together::Acquired(holds) = other.try_acquire_all(&claims).await.unwrap() else { panic!() };
    assert!(token(&holds[0]) > *tokens.last().unwrap(), "the counter of the slot goes on");
    for hold in &holds {
        assert_eq!(other.release(hold).await.unwrap(), Released::Released);
    }
}

async fn keys_of_several_slots_are_one_after_another(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let claims: Vec<_> = ["one", "two", "three"].iter().map(|key| claim(key, LIMIT)).collect();
    assert!(matches!(redis.try_acquire_all(&claims).await.unwrap(), Together::OneByOne));
    for claim in &claims {
        let held = cluster.ask_owner(&name("one"), &format!("EXISTS {}", name("one"))).unwrap();
        assert_eq!(held, "0", "nothing was asked");
        let hold = take(&redis, claim).await;
        redis.release(&hold).await.unwrap();
    }
}

async fn holds_of_one_slot_are_renewed_by_one_script(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let keys = keys(3, 100);
    let mut holds: Vec<Hold> = Vec::new();
    // Of one slot after another, as nobody takes them.
    for at in 0..100 {
        for slot in &keys {
            holds.push(take(&redis, &claim(&slot[at], LIMIT)).await);
        }
    }
    let asked: Vec<_> = holds.iter().collect();
    // The servers learn the script.
    redis.renew(&asked[..3]).await;
    let gone = &keys[1][7];
    cluster.ask_owner(&name(gone), &format!("DEL {}", name(gone))).unwrap();
    cluster.ask_owner(&name(&keys[0][0]), &format!("PEXPIRE {} 9000", name(&keys[0][0]))).unwrap();
    let before = scripts(cluster);
    let answers = redis.renew(&asked).await;
    let requests = scripts(cluster) - before;
    assert!((3..=6).contains(&requests), "{requests} scripts for 300 holds of three slots");
    let lost = |hold: &Hold| hold.claim.key.as_str().ends_with(&format!("<{gone}>"));
    for (hold, answer) in holds.iter().zip(answers) {
        assert_eq!(answer.unwrap() == Standing::Lost, lost(hold), "{hold:?}");
    }
    assert!(left(cluster, &keys[0][0]) > 10_000, "it was prolonged");
    for hold in holds.iter().filter(|hold| !lost(hold)) {
        assert_eq!(redis.release(hold).await.unwrap(), Released::Released);
    }
}

async fn holds_on_their_way_are_renewed_one_by_one(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let keys = keys(1, 6).remove(0);
    let mut holds = Vec::new();
    for key in &keys {
        holds.push(take(&redis, &claim(key, LIMIT)).await);
    }
    let (moving, first) = (cluster.clone(), keys[0].clone());
    let step = blocking(move || {
        let step = Move::of(&moving, &first);
        step.begin();
        // One of them is there, and the others are here.
        assert_eq!(step.carry(&format!("<{first}>}}")), 1);
        step
    })
    .await;
    let asked: Vec<_> = holds.iter().collect();
    lateness::watch();
    let begin = std::time::Instant::now();
    for answer in redis.renew(&asked).await {
        assert!(matches!(answer.unwrap(), Standing::Renewed(_)));
    }
    // Without a wait for the slot's arrival, which here nobody would see.
    lateness::assert_within(3 * SECOND, begin, "the renewals");
    blocking(move || step.finish()).await;
    for hold in &holds {
        assert!(matches!(confirm(&redis, hold).await, Standing::Renewed(_)));
        assert_eq!(redis.release(hold).await.unwrap(), Released::Released);
    }
}

async fn a_fenced_write_that_lies_in_two_slots_is_told(cluster: &Arc<RedisCluster>) {
    let fence = Fence::from_parts(claim("fenced", LIMIT).key.clone(), Some(1)).unwrap();
    let owner = cluster.owner_of("{stock:42}").unwrap();
    let client = redis::Client::open(cluster.nodes[owner].url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let error = fenced::set(&mut connection, &fence, "stock:42", 7).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "key"), "{error}");
    assert!(!error.is_retryable() && error.to_string().contains("CROSSSLOT"), "{error}");
    fenced::set(&mut connection, &fence, "{stock:42}", 7).await.unwrap();
    assert_eq!(cluster.nodes[owner].ask("GET {stock:42}").unwrap(), "7");
}

async fn a_silent_server_holds_up_no_other(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let (silent, other) = (key_at(cluster, 0), key_at(cluster, 1));
    // The servers learn the script.
    for key in [&silent, &other] {
        let warm = take(&redis, &claim(key, LIMIT)).await;
        assert!(matches!(confirm(&redis, &warm).await, Standing::Renewed(_)));
        redis.release(&warm).await.unwrap();
    }
    let silent = take(&redis, &claim(&silent, 6 * SECOND)).await;
    let other = take(&redis, &claim(&other, 6 * SECOND)).await;
    let pausing = cluster.clone();
    blocking(move || pausing.nodes[0].pause().unwrap()).await;
    // As long as the engine waits for the answers, which is less than the client waits for that server.
    let both = [&silent, &other];
    lateness::watch();
    let begin = std::time::Instant::now();
    let answers = tokio::time::timeout(LIMIT, redis.renew(&both)).await;
    cluster.nodes[0].resume().unwrap();
    lateness::assert_within(1400 * MS, begin, "the answers of the others");
    let answers = answers.expect("they were answered");
    assert!(answers[0].as_ref().is_err_and(dlock::Error::is_retryable), "{:?}", answers[0]);
    assert!(matches!(answers[1], Ok(Standing::Renewed(_))), "{:?}", answers[1]);
    assert!(matches!(standing_soon(&redis, &silent, LIMIT).await, Standing::Renewed(_)));
    for hold in [&silent, &other] {
        assert_eq!(redis.release(hold).await.unwrap(), Released::Released);
    }
}
