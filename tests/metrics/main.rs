//! The metrics say what has happened.

#![expect(clippy::unwrap_used, reason = "a test may fail by it")]

mod failing;
mod history;
mod values;

use std::time::Duration;

use dlock::metrics::Metrics;
use dlock::{Clock, Cohort, ErrorKind, Key, Mode, Observer, OncePer, Registry, Renew, Wait};
use dlock_testkit::servers::{Instance, Redis};
use dlock_testkit::wait_until;
use metrics::Unit;

use crate::values::{Kept, values};

fn registry() -> Registry {
    registry_of("main")
}

/// With a store of this name. The metrics of stores are told apart by it.
fn registry_of(name: &str) -> Registry {
    let registry = Registry::new();
    registry.install(name, dlock_memory::Memory::new()).unwrap();
    registry.set_default(name).unwrap();
    registry.observe(Metrics::new());
    registry
}

#[tokio::test]
async fn requests_to_the_store_are_counted_with_their_time() {
    let (values, registry) = (values(), registry_of("requests"));
    let count = |operation: &str| {
        let labels = ["backend=requests", "store=memory", &format!("operation={operation}"), "outcome=answered"];
        let times = values.times("dlock_store_request_seconds", &labels[..3]).0;
        let counted = values.count("dlock_store_requests_total", &labels);
        assert_eq!(times, counted, "{operation}");
        counted
    };
    for _ in 0..3 {
        registry.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!((count("acquire"), count("release"), count("inspect"), count("break")), (3, 3, 0, 0));
    registry.lock("k").holders().await.unwrap();
    registry.ready("requests").await.unwrap();
    assert_eq!((count("inspect"), count("ready")), (1, 1));
    assert_eq!(values.gauge("dlock_store_up", &["backend=requests"]), 1.0);
    assert_eq!(values.gauge("dlock_store_guarded", &["backend=requests"]), 0.0);
    let guard = registry.lock("k").name("confirmed").acquire().await.unwrap();
    guard.confirm().await.unwrap();
    assert!(count("renew") >= 1);
}

#[tokio::test]
async fn a_guard_that_keeps_grants_back_is_seen() {
    let server = Instance::start(Redis::default()).unwrap();
    let (values, registry) = (values(), Registry::new());
    registry.observe(Metrics::new());
    registry.connect("guarded", &format!("{}?restart_guard=10m", server.url())).await.unwrap();
    let error = registry.lock("k").wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    let labels = ["backend=guarded", "store=redis"];
    assert_eq!(values.gauge("dlock_store_guarded", &labels), 1.0, "{error}");
    assert_eq!(values.gauge("dlock_store_up", &labels), 1.0, "it answers");
    assert_eq!(
        values.count("dlock_store_requests_total", &["backend=guarded", "operation=acquire", "outcome=guarded"]),
        1
    );
}

#[tokio::test]
async fn a_request_that_its_caller_drops_is_given_up() {
    let server = Instance::start(Redis::default()).unwrap();
    let (values, registry) = (values(), Registry::new());
    registry.observe(Metrics::new());
    registry.connect("dropped", &server.url()).await.unwrap();
    server.pause().unwrap();
    let call = tokio::spawn(registry.lock("k").name("dropped").wait(Wait::Forever).acquire());
    // This runtime has one thread, so by then the first poll is over, and the request is on its way.
    wait_until("the call", async || values.gauge("dlock_waiting", &["lock=dropped"]) == 1.0).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let labels = ["backend=dropped", "operation=acquire", "outcome=given_up"];
    assert_eq!(values.count("dlock_store_requests_total", &labels), 1);
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=dropped", "outcome=given_up"]), 1);
    server.resume().unwrap();
}

#[tokio::test]
async fn hand_overs_are_counted_by_their_way() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock("k").name("handed").wait(Wait::Forever).cohort(Some(Cohort { passes: 64, span: None }));
    let way = |way: &str| values.count("dlock_handovers_total", &["lock=handed", &format!("way={way}")]);
    let guard = lock().acquire().await.unwrap();
    assert_eq!(values.count("dlock_handovers_total", &["lock=handed"]), 0, "the caller has asked for it itself");
    let waiter = tokio::spawn(lock().acquire());
    wait_until("a waiter", async || values.gauge("dlock_waiting", &["lock=handed"]) == 1.0).await.unwrap();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!((way("cohort"), way("release"), way("queue")), (1, 0, 0));
}

/// The release asks for a neighbour, if the store offers that; and the store's wait queue grants to another process.
#[tokio::test]
async fn a_hand_over_by_a_release_and_one_by_the_store_are_counted_as_such() {
    let server = Instance::start(Redis::default()).unwrap();
    let values = values();
    let here = registry_of("released");
    let there = [Registry::new(), Registry::new()];
    for registry in &there {
        registry.connect("queued", &server.url()).await.unwrap();
        registry.observe(Metrics::new());
    }
    for (name, way, holder, waiter) in
        [("released", "release", &here, &here), ("queued", "queue", &there[0], &there[1])]
    {
        let lock = |registry: &Registry| registry.lock("k").name(name).wait(Wait::Forever).acquire();
        let count =
            |way: &str| values.count("dlock_handovers_total", &[&format!("lock={name}"), &format!("way={way}")]);
        let hand_over = async || {
            let guard = lock(holder).await.unwrap();
            let waiting = tokio::spawn(lock(waiter));
            let waits = async || match way {
                "queue" => holder.lock("k").holders().await.unwrap().waiters == Some(1),
                _ => values.gauge("dlock_waiting", &[&format!("lock={name}")]) == 1.0,
            };
            wait_until("a waiter", waits).await.unwrap();
            guard.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
            count(way) > 0
        };
        // A waiter whose connection for news opens too late asks itself.
        wait_until("a hand-over", hand_over).await.unwrap();
        for other in ["cohort", "release", "queue"] {
            assert_eq!(count(other) > 0, other == way, "{other}");
        }
    }
}

#[tokio::test]
async fn a_hold_that_nears_its_limit_is_seen_before_its_end() {
    let (values, clock) = (values(), Clock::manual());
    let registry = Registry::with_clock(&clock);
    registry.install("near", dlock_memory::Memory::with_clock(&clock)).unwrap();
    registry.set_default("near").unwrap();
    registry.observe(Metrics::new());
    let hold = async |name, limit| {
        let lock = registry.lock(name).name(name).ttl(Duration::from_secs(3600));
        lock.max_hold(Duration::from_secs(limit)).acquire().await.unwrap()
    };
    let (near, far) = (hold("near", 3600).await, hold("far", 360_000).await);
    let renewed = async |guard: &dlock::Guard, name| {
        let renewals = || values.count("dlock_renewals_total", &[name, "outcome=renewed"]);
        let before = renewals();
        guard.confirm().await.unwrap();
        wait_until("the event of the renewal", async || renewals() > before).await.unwrap();
        values.count("dlock_renewals_near_max_hold_total", &[name])
    };
    assert_eq!(renewed(&near, "lock=near").await, 0);
    clock.advance(Duration::from_secs(2900));
    assert!(renewed(&near, "lock=near").await >= 1);
    assert_eq!(renewed(&far, "lock=far").await, 0);
    near.release().await.unwrap();
    far.release().await.unwrap();
}

#[tokio::test]
async fn elections_beyond_the_bound_share_one_name() {
    let (values, registry) = (values(), registry_of("many elections"));
    for number in 0..=1000 {
        let name = format!("election-{number}");
        registry.elect(Key::rendered(&name)).campaign().await.unwrap().resign().await.unwrap();
    }
    let changes = |name: &str| {
        let labels = ["backend=many elections", &format!("election={name}")];
        values.count("dlock_leader_changes_total", &labels)
    };
    assert_eq!((changes("election-0"), changes("other")), (1, 1));
}

#[tokio::test]
async fn a_wait_that_could_not_end_is_counted() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock("k").name("nested");
    let nested = lock().run(async |_| lock().wait(Wait::Forever).acquire().await.map(drop)).await.unwrap();
    assert_eq!(*nested.unwrap_err().kind(), ErrorKind::WouldDeadlock);
    assert_eq!(values.count("dlock_deadlocks_total", &["lock=nested", "kind=would_deadlock"]), 1);
}

#[tokio::test]
async fn a_refused_write_is_counted() {
    let (values, registry) = (values(), registry());
    let refused = || values.count("dlock_fenced_writes_refused_total", &[]);
    let guard = registry.lock("k").name("fenced").acquire().await.unwrap();
    let fence = guard.fence().unwrap();
    let line = dlock::fenced::line(&fence, "token", "?").unwrap();
    line.written(1).unwrap();
    assert_eq!(refused(), 0);
    line.written(0).unwrap_err();
    assert_eq!(refused(), 1);
}

#[tokio::test]
async fn the_leader_is_seen_with_its_term() {
    let (values, registry) = (values(), registry());
    let labels = ["election=billing", "backend=main", "store=memory"];
    let seen = |name: &str| values.gauge(name, &labels);
    let changes = || values.count("dlock_leader_changes_total", &labels);
    for change in 1..=2 {
        let leadership = registry.elect("billing").candidate("web-3").campaign().await.unwrap();
        assert_eq!((seen("dlock_leader"), seen("dlock_leader_term")), (1.0, leadership.term().get() as f64));
        assert_eq!(changes(), change);
        leadership.resign().await.unwrap();
        assert_eq!((seen("dlock_leader"), seen("dlock_leader_term")), (0.0, 0.0));
    }
    registry.lock("billing").name("no election").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(changes(), 2, "a lock is no election");
}

/// Shards that are led by different processes have one name, and would look like an election with two leaders.
#[tokio::test]
async fn elections_whose_names_have_values_are_no_election_with_two_leaders() {
    let (values, registry) = (values(), registry());
    let lead = async |shard: u64| registry.elect(Key::text("shard:").value(&shard)).campaign().await.unwrap();
    let leaderships = [lead(7).await, lead(8).await];
    assert_eq!(values.count("dlock_leader_changes_total", &["backend=main"]), 0);
    for leadership in leaderships {
        leadership.resign().await.unwrap();
    }
}

#[dlock::distributed_lock(key = "sale:<id>", name = "sale", fence = token, backend = "fenced")]
async fn sell(id: u64) -> dlock::Result<(u64, u64)> {
    Ok((id, token.get()))
}

#[tokio::test]
async fn a_function_that_uses_its_token_is_no_election() {
    let values = values();
    dlock::install("fenced", dlock_memory::Memory::new()).unwrap();
    dlock::observe(Metrics::new());
    sell(1).await.unwrap();
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=sale", "outcome=acquired"]), 1);
    assert_eq!(values.count("dlock_leader_changes_total", &["election=sale"]), 0);
}

#[tokio::test]
async fn a_task_tells_its_period_and_its_last_success() {
    let (values, registry) = (values(), registry());
    let day = Duration::from_secs(86_400);
    let task = || registry.lock("k").name("nightly").once_per(OncePer::new(day));
    let success = || values.gauge("dlock_last_success_timestamp_seconds", &["lock=nightly"]);
    drop(task().acquire().await.unwrap());
    wait_until("its end", async || values.gauge("dlock_held", &["lock=nightly"]) == 0.0).await.unwrap();
    assert_eq!(success(), 0.0, "nobody knows whether it has succeeded");
    assert_eq!(values.gauge("dlock_once_per_seconds", &["lock=nightly"]), 86_400.0);
    let asked = values.gauge("dlock_once_per_asked_timestamp_seconds", &["lock=nightly"]);
    let other = registry.lock("other").name("nightly").once_per(OncePer::new(day));
    other.run(async |_| ()).await.unwrap();
    // Both are read from one clock, in this order, and the store's has milliseconds.
    assert!(asked > 1.7e9 && success() + 0.001 >= asked, "{asked} {}", success());
}

#[tokio::test]
async fn limits_are_told_where_there_are_some() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock("k").name("limited");
    let limits =
        || ["dlock_wait_limit_seconds", "dlock_max_hold_seconds"].map(|name| values.gauge(name, &["lock=limited"]));
    lock().wait(Wait::Forever).acquire().await.unwrap().release().await.unwrap();
    assert!(
        values.kept(|kept| !kept.gauges.keys().any(|text| text.contains("wait_limit") && text.contains("=limited")))
    );
    for seconds in [3, 5] {
        let longest = Duration::from_secs(seconds);
        lock().wait(Wait::UpTo(longest)).max_hold(10 * longest).acquire().await.unwrap().release().await.unwrap();
        let seconds = longest.as_secs_f64();
        assert_eq!(limits(), [seconds, 10.0 * seconds]);
    }
}

#[test]
fn dropped_events_are_counted() {
    let values = values();
    Metrics::new().on_dropped(7);
    assert_eq!(values.count("dlock_dropped_events_total", &[]), 7);
}

/// With labels that say which lock, store and mode; never the key.
#[tokio::test]
async fn a_hold_and_a_waiter_are_seen_with_their_labels() {
    let (values, registry) = (values(), registry());
    let lock = || registry.lock(Key::text("stock:").value(&"secret42")).name("shop::deduct");
    let labels = ["lock=shop::deduct", "backend=main", "store=memory", "mode=exclusive"];
    let guard = lock().acquire().await.unwrap();
    assert_eq!((values.gauge("dlock_held", &labels), values.gauge("dlock_waiting", &labels)), (1.0, 0.0));
    let waiter = tokio::spawn(lock().wait(Wait::Forever).acquire());
    wait_until("the waiter is seen", async || values.gauge("dlock_waiting", &labels) == 1.0).await.unwrap();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!((values.gauge("dlock_held", &labels), values.gauge("dlock_waiting", &labels)), (0.0, 0.0));
    registry
        .lock("permits")
        .name("shop::permits")
        .mode(Mode::Permits(2.try_into().unwrap()))
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=shop::permits", "mode=permits"]), 1);
    values.kept(|kept| {
        let all = kept.counters.keys().chain(kept.gauges.keys()).chain(kept.histograms.keys());
        assert!(all.clone().all(|text| !text.contains("secret42")));
        for text in all {
            let name = text.split('{').next().unwrap();
            assert!(kept.described.contains_key(name), "{name} has no description");
            let is_time = name.ends_with("_seconds");
            assert_eq!(is_time, kept.described[name] == Some(Unit::Seconds), "{name}");
        }
    });
}

#[tokio::test]
async fn renewals_say_how_much_of_the_lease_was_left() {
    let (values, registry) = (values(), registry());
    let lock = registry.lock("k").name("renewed").ttl(Duration::from_secs(30));
    let guard = lock.renew(Renew::Every(Duration::from_millis(100))).acquire().await.unwrap();
    let renewed = async || values.count("dlock_renewals_total", &["lock=renewed", "outcome=renewed"]) >= 3;
    wait_until("three renewals", renewed).await.unwrap();
    drop(guard);
    let (count, sum) = values.times("dlock_renewal_lease_left_ratio", &["lock=renewed"]);
    assert!(count >= 3 && sum > 0.0 && sum < f64::from(u32::try_from(count).unwrap()), "{count} {sum}");
}

#[tokio::test]
async fn a_failed_call_is_counted_by_the_kind_of_its_error() {
    let (values, registry) = (values(), registry());
    registry.connect_lazy("down", "redis://127.0.0.1:1/").unwrap();
    let error = registry.lock("k").name("down").backend("down").wait(Wait::None).acquire().await.unwrap_err();
    let outcome = format!("outcome={}", error.kind().as_str());
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=down", "backend=down", &outcome]), 1, "{error}");
    assert_eq!(values.gauge("dlock_waiting", &["lock=down"]), 0.0);
}

#[tokio::test]
async fn a_name_that_is_made_at_run_time_does_not_fill_the_exporter() {
    let (values, registry) = (values(), registry());
    for number in 0..1100 {
        let lock = registry.lock("k").name(format!("made {number}"));
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let made = |kept: &mut Kept| kept.gauges.keys().filter(|text| text.contains("lock=made")).count();
    assert_eq!(values.kept(made), 4 * 1000, "held, waiting, the longest wait and the longest hold of each");
    assert_eq!(values.count("dlock_acquisitions_total", &["lock=other", "outcome=acquired"]), 100);
}

#[tokio::test]
async fn a_backend_that_is_named_at_run_time_does_not_fill_the_exporter() {
    let (values, registry) = (values(), Registry::new());
    registry.observe(Metrics::new());
    for number in 0..1100 {
        let backend = format!("tenant {number}");
        registry.install(&backend, dlock_memory::Memory::new()).unwrap();
        let election = registry.elect("of tenants").backend(&backend);
        election.campaign().await.unwrap().resign().await.unwrap();
    }
    let backends = |kept: &mut Kept| {
        let of = |text: &String| text.contains("backend=tenant") && text.contains("dlock_held");
        kept.gauges.keys().filter(|text| of(text)).count()
    };
    assert_eq!(values.kept(backends), 1000);
    let count = |name: &str, label: &str| values.count(name, &["backend=other", label]);
    assert_eq!(count("dlock_acquisitions_total", "outcome=acquired"), 100);
    assert_eq!(count("dlock_store_requests_total", "operation=acquire"), 100);
    assert_eq!(count("dlock_leader_changes_total", "election=of tenants"), 100);
}
