//! `keys=literal` beside redis-py's lock, and beside the values of similar tools.

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Queue, Released};
use dlock_testkit::holds::{claim_on, confirm, stand, take, token, until, wait};
use redis::Commands;

use super::bench::{Bench, LONG, MS, SECOND};
use super::python::redis_py;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_finds_our_lock_taken_and_gets_it_after_our_release() {
    let bench = Bench::new();
    let (ours, mut python) = (bench.literal().await, redis_py(&bench.url));
    let hold = take(&ours, &bench.claim(LONG)).await;
    // Under the name that was written by hand, and under no other one.
    assert_eq!(bench.keys(), std::slice::from_ref(&bench.name));
    assert!(!python.does(&format!("acquire {} 30 0", bench.name)));
    python.begin(&format!("acquire {} 30 20", bench.name));
    assert!(matches!(confirm(&ours, &hold).await, dlock_contract::Standing::Renewed(_)));
    assert_eq!(ours.release(&hold).await.unwrap(), Released::Released);
    assert!(python.end());
    assert_eq!(ours.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(confirm(&ours, &hold).await, dlock_contract::Standing::Lost);
    assert!(python.does(&format!("release {}", bench.name)));
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_redis_py_is_contention_and_stays_as_it_is() {
    let bench = Bench::new();
    let (ours, mut python) = (bench.literal().await, redis_py(&bench.url));
    assert!(python.does(&format!("acquire {} 30 0", bench.name)));
    let before = bench.value();
    for how in [Queue::Leave, until()] {
        for fair in [false, true] {
            let claim = claim_on(&bench.key, SECOND, |claim| claim.fair = fair);
            let Attempt::Contended(wake) = ours.try_acquire(&claim, how).await.unwrap() else { panic!("granted") };
            let named = wake.held_by.is_none_or(|note| note.as_str().contains("foreign client"));
            assert!(named, "a refusal names a foreign client, and shows nothing of its value");
            let left = wake.lease_left.unwrap();
            assert!(left > 10 * SECOND && left <= LONG, "{left:?}");
            assert_eq!(bench.value(), before);
            // dlock keeps no key beside a name that others have chosen.
            assert!(
                bench.keys().iter().all(|key| *key == bench.name || crate::names::is_ours(key)),
                "{:?}",
                bench.keys()
            );
            ours.abandon(&claim).await.unwrap();
        }
    }
    let told = ours.look(&bench.key).await.unwrap().note().cloned().unwrap();
    assert_eq!((told.host(), told.pid()), (None, None));
    assert!(told.as_str().contains("foreign client"), "{told}");
    assert!(python.does(&format!("extend {} 60", bench.name)));
    assert!(bench.left() > 31_000);
    assert!(python.does(&format!("release {}", bench.name)));
    assert_eq!(bench.keys(), [""; 0]);
    assert!(ours.look(&bench.key).await.unwrap().note().cloned().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_in_our_queue_follow_redis_py_in_order() {
    let bench = Bench::new();
    let (one, two, mut python) = (bench.literal().await, bench.literal().await, redis_py(&bench.url));
    let earlier = take(&one, &bench.claim(LONG)).await;
    one.release(&earlier).await.unwrap();
    assert!(python.does(&format!("acquire {} 30 0", bench.name)));
    let before = bench.value();
    let (first, second) = (bench.claim(LONG), bench.claim(LONG));
    let head = stand(&one, &first).await;
    let between = Clock::system().now();
    let behind = stand(&two, &second).await;
    // Nobody pushes a release of redis-py, so the first waiter polls often, and the others as seldom as usual.
    assert!(head.ask_by.unwrap().since(between) < 200 * MS);
    assert!(behind.ask_by.unwrap().since(between) > 700 * MS);
    assert_eq!(bench.value(), before);
    assert!(python.does(&format!("release {}", bench.name)));
    let first = wait(&one, &first, LONG).await;
    assert!(token(&first) > token(&earlier));
    // From here on the lock is handed over as ever.
    drop(behind);
    let again = stand(&two, &second).await;
    assert!(!python.does(&format!("acquire {} 30 0", bench.name)));
    assert_eq!(one.release(&first).await.unwrap(), Released::Released);
    let second = wait(&two, &second, LONG).await;
    drop(again);
    assert!(token(&second) > token(&first));
    assert_eq!(second.claim.key, bench.key);
    assert!(!python.does(&format!("acquire {} 30 0", bench.name)));
    assert_eq!(two.release(&second).await.unwrap(), Released::Released);
    assert!(python.does(&format!("acquire {} 30 0", bench.name)));
    python.kill();
    let _: () = bench.raw().del(&bench.name).unwrap();
    bench.empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_py_ends_with_its_lease() {
    let bench = Bench::new();
    let (ours, mut python) = (bench.literal().await, redis_py(&bench.url));
    assert!(python.does(&format!("acquire {} 0.6 0", bench.name)));
    python.kill();
    let claim = bench.claim(LONG);
    let wake = stand(&ours, &claim).await;
    assert!(bench.left() > 0, "the machine is too slow for this lease");
    drop(wake);
    let hold = wait(&ours, &claim, LONG).await;
    ours.release(&hold).await.unwrap();
    bench.empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lock_without_a_lease_and_a_value_that_is_no_lock_are_conflicts() {
    let bench = Bench::new();
    let (ours, mut python) = (bench.literal().await, redis_py(&bench.url));
    // As redis-py does by default.
    assert!(python.does(&format!("acquire {} never 0", bench.name)));
    bench.conflicts(&ours).await;
    let writes: [fn(&mut redis::Connection, &str); 3] = [
        |raw, name| raw.hset(name, "a", "b").unwrap(),
        |raw, name| raw.lpush(name, "a").unwrap(),
        |raw, name| raw.set(name, "").unwrap(),
    ];
    for write in writes {
        write(&mut bench.raw(), &bench.name);
        bench.conflicts(&ours).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_foreign_bytes_with_a_lease_are_a_lock_and_are_shown_to_nobody() {
    let bench = Bench::new();
    let ours = bench.literal().await;
    // Values as redsync, node-redlock and others make them, and one that begins like a marker of dlock.
    let values: [&[u8]; 6] = [
        b"\xff\x00\x80 +line\xfe",
        b"6Ql2nUVuLSwQWqUmNQ==",
        b"0123456789abcdef0123456789abcdef",
        b"0123456789abcdef0123456789abcdef host-7",
        b"",
        b"dlock:rw",
    ];
    for value in values {
        let mut raw = bench.raw();
        let set = redis::cmd("SET").arg(&bench.name).arg(value).arg("NX").arg("PX").arg(30_000).query::<bool>(&mut raw);
        assert!(set.unwrap());
        let claim = bench.claim(SECOND);
        let wake = stand(&ours, &claim).await;
        let told = format!("{wake:?} {:?}", ours.look(&bench.key).await.unwrap().note().cloned().unwrap());
        assert!(!["0123456789abcdef", "6Ql2", "host-7"].iter().any(|secret| told.contains(secret)), "{told}");
        drop(wake);
        ours.abandon(&claim).await.unwrap();
        let script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
        let freed: i64 = redis::Script::new(script).key(&bench.name).arg(value).invoke(&mut raw).unwrap();
        assert_eq!(freed, 1);
    }
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_others_choose_and_the_keys_beside_our_locks_never_meet() {
    let bench = Bench::new();
    let ours = bench.literal().await;
    let hold = take(&ours, &bench.claim(LONG)).await;
    let waiter = bench.claim(LONG);
    let wake = stand(&ours, &waiter).await;
    // The queue of `stock:…` would be there if it had no name of its own.
    let text: &'static str = Box::leak(format!("{}:q", bench.name).into_boxed_str());
    let other = claim_on(&LockKey::new("test", Key::text(text)).unwrap(), LONG, |_| ());
    let beside = take(&ours, &other).await;
    assert_eq!(bench.keys().iter().filter(|key| !crate::names::is_ours(key)).count(), 2, "{:?}", bench.keys());
    assert_eq!(ours.release(&beside).await.unwrap(), Released::Released);
    drop(wake);
    ours.abandon(&waiter).await.unwrap();
    ours.release(&hold).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_parameter_locks_have_our_names_and_foreign_locks_are_ignored() {
    let bench = Bench::new();
    let redis = Redis::connect(&bench.url, &Clock::system()).await.unwrap();
    let mut python = redis_py(&bench.url);
    assert!(python.does(&format!("acquire {} 30 0", bench.name)));
    let hold = take(&redis, &bench.claim(LONG)).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    assert!(python.does(&format!("release {}", bench.name)));
    for (url, other) in [("keys=literal", "layout=redisson"), ("layout=redisson", "keys=literal")] {
        let error = Redis::connect(&format!("{}?{url}", bench.url), &Clock::system()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{url}, {other}");
    }
    // Each of the three is for its own URL.
    for error in [
        dlock::backends::redis::Literal::connect(&bench.url, &Clock::system()).await.err(),
        dlock::backends::redis::Redisson::connect(&bench.url, &Clock::system()).await.err(),
    ] {
        assert!(matches!(error.unwrap().kind(), ErrorKind::ConfigInvalid { .. }));
    }
}
