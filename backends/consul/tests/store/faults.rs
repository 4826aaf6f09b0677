//! Agents that are killed, silent or cut off.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dlock::backends::consul::Consul;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_store::background;
use dlock_testkit::holds::{self, claim, take, token, until};
use dlock_testkit::servers::{self, Instance, shared};
use dlock_testkit::{Mode, Proxy, a_closed_store_opens_nothing, in_real_time, lateness, text_of, wait_until};

use crate::server::{LONG, Raw, SECOND, fresh, name, open, own, renewal};

#[tokio::test]
async fn a_hold_survives_a_killed_agent_and_an_outage_is_not_a_loss() {
    let server = own();
    let store = open(&server.url()).await.unwrap();
    let claim = claim(&fresh("killed"), LONG);
    let hold = take(&store, &claim).await;
    server.kill9().unwrap();
    let next = holds::claim_on(&claim.key, LONG, |_| ());
    for error in [store.try_acquire(&next, Queue::Leave).await.unwrap_err(), renewal(&store, &hold).await.unwrap_err()]
    {
        assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
    }
    assert!(store.ready().await.is_err());
    server.restart().unwrap();
    let refused = holds::stand(&store, &next).await;
    assert_eq!(refused.held_by.as_ref(), Some(&claim.note), "a restart forgot the holder");
    assert!(matches!(renewal(&store, &hold).await.unwrap(), Standing::Renewed(_)));
    let health = store.ready().await.unwrap();
    assert_eq!(
        (health.version.as_deref(), &health.counts[..]),
        (Some("Consul 1.8.7"), &[("members".to_owned(), 1)][..])
    );
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let next = take(&store, &next).await;
    assert!(token(&next) > token(&hold));
}

#[tokio::test]
async fn an_attempt_whose_reply_is_lost_is_undone_by_its_abandon() {
    let server = own();
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let (store, raw) = (open(&format!("{url}?lock_delay=0s")).await.unwrap(), Raw::at(&server.url()));
    for _ in 0..8 {
        let claim = claim(&fresh("lost reply"), LONG);
        proxy.set(Mode::DropReplies);
        let error = store.try_acquire(&claim, Queue::Leave).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
        proxy.set(Mode::Pass);
        store.abandon(&claim).await.unwrap();
        assert!(raw.entry(&name(&claim)).is_null());
    }
}

#[tokio::test]
async fn an_abandon_on_dlocks_own_thread_does_not_overtake_an_attempt_from_another_one() {
    let server = own();
    let (store, raw) = (open(&format!("{}?lock_delay=0s", server.url())).await.unwrap(), Raw::at(&server.url()));
    let store = Arc::new(store);
    // Which task comes first is also a matter of what ran before.
    for _ in 0..8 {
        let claim = claim(&fresh("overtaken"), LONG);
        let ((is_there, there), (begun, has_begun)) = (mpsc::channel(), mpsc::channel());
        let (abandoning, asked) = (store.clone(), claim.clone());
        let abandon = background().unwrap().run(async move {
            is_there.send(()).unwrap();
            // The thread is busy, so the attempt waits in the queue of tasks that other threads have spawned.
            has_begun.recv().unwrap();
            abandoning.abandon(&asked).await
        });
        there.recv().unwrap();
        let mut attempt = store.try_acquire(&claim, Queue::Leave);
        assert!(futures::poll!(&mut attempt).is_pending());
        begun.send(()).unwrap();
        abandon.await.unwrap().unwrap();
        let _ = attempt.await;
        assert!(raw.entry(&name(&claim)).is_null(), "the attempt came after its abandon");
    }
}

#[tokio::test]
async fn waiters_and_holders_go_on_after_their_connections_were_cut() {
    let server = own();
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let store = open(&format!("{url}?lock_delay=0s")).await.unwrap();
    let holder = claim(&fresh("cut"), LONG);
    let hold = take(&store, &holder).await;
    let waiter = holds::claim_on(&holder.key, LONG, |_| ());
    let mut wake = holds::stand(&store, &waiter).await;
    let ended = tokio::spawn(hold.session.as_ref().unwrap().ended().unwrap());
    let news = tokio::spawn(wake.signal.take().unwrap());
    proxy.cut();
    let standing = match renewal(&store, &hold).await {
        Ok(standing) => standing,
        // A connection that broke is noticed by the first request over it.
        Err(_) => renewal(&store, &hold).await.unwrap(),
    };
    assert!(matches!(standing, Standing::Renewed(_)) && !ended.is_finished());
    Raw::at(&server.url()).destroy(&Raw::at(&server.url()).holder(&name(&holder)).unwrap());
    tokio::time::timeout(SECOND * 60, ended).await.expect("the query did not begin again").unwrap();
    // An error, after which the caller asks again, or the news.
    let _ = tokio::time::timeout(SECOND * 8, news).await.expect("the waiter sleeps on").unwrap();
    take(&store, &waiter).await;
}

/// A store on a manual clock.
async fn opened(url: &str, clock: &Clock) -> Consul {
    in_real_time(clock, Consul::open(&format!("{url}?lock_delay=0s"), clock)).await.unwrap()
}

#[tokio::test]
async fn requests_to_a_silent_agent_end_together_and_do_not_pile_up() {
    let (proxy, url) = Proxy::in_front_of(&shared().consul().unwrap()).unwrap();
    let clock = Clock::manual();
    let store = opened(&url, &clock).await;
    proxy.set(Mode::BLACKHOLE);
    // Far more than the 32 that may be under way.
    let claims: Vec<_> = (0..200).map(|number| claim(&fresh(&format!("piled {number}")), LONG)).collect();
    let mut attempts: Vec<_> = claims.iter().map(|claim| store.try_acquire(claim, Queue::Leave)).collect();
    for attempt in &mut attempts {
        assert!(futures::poll!(attempt).is_pending());
    }
    wait_until("32 requests", async || proxy.swallowing() >= 32).await.unwrap();
    // All others have begun to wait for their turn by now.
    background().unwrap().run(async {}).await.unwrap();
    clock.advance(SECOND * 5);
    let ended = tokio::time::timeout(SECOND * 60, futures::future::join_all(attempts)).await;
    for attempt in ended.expect("the requests behind the first ones still wait") {
        let error = attempt.unwrap_err();
        assert!(*error.kind() == ErrorKind::Outage && !error.may_have_left(), "{error}");
    }
    proxy.cut();
    proxy.set(Mode::Pass);
    let hold = in_real_time(&clock, take(&store, &claims[0])).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn closing_a_store_whose_agent_is_silent_ends_all_claims_together() {
    let (proxy, url) = Proxy::in_front_of(&shared().consul().unwrap()).unwrap();
    let clock = Clock::manual();
    let store = opened(&url, &clock).await;
    for _ in 0..8 {
        in_real_time(&clock, take(&store, &claim(&fresh("closed"), SECOND))).await;
    }
    proxy.set(Mode::BLACKHOLE);
    let mut close = store.close();
    assert!(futures::poll!(&mut close).is_pending());
    wait_until("8 requests", async || proxy.swallowing() >= 8).await.unwrap();
    clock.advance(SECOND * 5);
    tokio::time::timeout(SECOND * 60, close).await.expect("the claims ended one after another");
}

#[tokio::test]
async fn a_store_that_was_closed_opens_nothing() {
    let (proxy, url) = Proxy::in_front_of(&shared().consul().unwrap()).unwrap();
    a_closed_store_opens_nothing(&open(&url).await.unwrap(), &[proxy], &claim(&fresh("closed"), LONG)).await;
}

/// On a slow agent the renewals of many holds wait for their turn. Were that time part of the ttl, they would be due again at
/// once, and be more with each round.
#[tokio::test]
async fn a_renewal_that_waited_for_its_turn_counts_from_when_it_left() {
    let (proxy, url) = Proxy::in_front_of(&shared().consul().unwrap()).unwrap();
    let clock = Clock::manual();
    let store = opened(&url, &clock).await;
    let hold = in_real_time(&clock, take(&store, &claim(&fresh("turn"), LONG))).await;
    proxy.set(Mode::BLACKHOLE);
    let holds = [&hold];
    // Each is two requests.
    let mut before: Vec<_> = (0..16).map(|_| store.renew(&holds)).collect();
    for renewal in &mut before {
        assert!(futures::poll!(renewal).is_pending());
    }
    wait_until("32 requests", async || proxy.swallowing() >= 32).await.unwrap();
    clock.advance(SECOND * 3);
    let mut renewal = store.renew(&holds);
    assert!(futures::poll!(renewal.as_mut()).is_pending());
    // It has begun to wait for its turn by now.
    background().unwrap().run(async {}).await.unwrap();
    proxy.set(Mode::Pass);
    // The other requests end.
    clock.advance(SECOND * 2);
    let left = clock.now();
    let Standing::Renewed(validity) = renewal.await.remove(0).unwrap() else { panic!("lost") };
    assert!(validity.from >= left, "it counts from before its turn");
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn renewals_do_not_wait_behind_attempts_and_attempts_not_behind_renewals() {
    let (proxy, url) = Proxy::in_front_of(&shared().consul().unwrap()).unwrap();
    // Its time does not go on, so no request gives up and makes room.
    let clock = Clock::manual();
    let store = opened(&url, &clock).await;
    let hold = in_real_time(&clock, take(&store, &claim(&fresh("beside"), LONG))).await;
    let holds = [&hold];

    proxy.set(Mode::BLACKHOLE);
    let claims: Vec<_> = (0..100).map(|number| claim(&fresh(&format!("attempt {number}")), LONG)).collect();
    let mut attempts: Vec<_> = claims.iter().map(|claim| store.try_acquire(claim, Queue::Leave)).collect();
    for attempt in &mut attempts {
        assert!(futures::poll!(attempt).is_pending());
    }
    wait_until("32 requests", async || proxy.swallowing() >= 32).await.unwrap();
    proxy.set(Mode::Pass);
    let renewed = tokio::time::timeout(SECOND * 60, store.renew(&holds)).await;
    let renewed = renewed.expect("a renewal waits behind attempts");
    assert!(matches!(renewed[..], [Ok(Standing::Renewed(_))]), "{renewed:?}");

    clock.advance(SECOND);
    let before = proxy.swallowing();
    proxy.set(Mode::BLACKHOLE);
    let mut renewals: Vec<_> = (0..50).map(|_| store.renew(&holds)).collect();
    for renewal in &mut renewals {
        assert!(futures::poll!(renewal).is_pending());
    }
    wait_until("32 more", async || proxy.swallowing() >= before + 32).await.unwrap();
    // The attempts of before end now, and the renewals a second later.
    clock.advance(SECOND * 4);
    futures::future::join_all(attempts).await;
    proxy.set(Mode::Pass);
    let next = claim(&fresh("next"), LONG);
    let taken = tokio::time::timeout(SECOND * 60, store.try_acquire(&next, Queue::Leave)).await;
    let taken = taken.expect("an attempt waits behind renewals").unwrap();
    assert!(matches!(taken, dlock_contract::Attempt::Acquired(_)), "{taken:?}");
}

#[tokio::test]
async fn a_silent_agent_ends_an_open_in_time() {
    lateness::watch();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let before = Instant::now();
    let error = open(&format!("consul://:canary@{}", silent.local_addr().unwrap())).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Outage);
    lateness::assert_within(SECOND * 7, before, "the end of the open");
    assert!(!text_of(&error).contains("canary"));
    let error = open("consul://127.0.0.1:1").await.unwrap_err();
    assert!(error.is_retryable() && text_of(&error).contains("refused"), "{error}");
}

#[tokio::test]
async fn a_dead_holders_lock_is_free_after_twice_the_ttl_and_the_lock_delay() {
    lateness::watch();
    let server = own();
    let url = format!("{}?lock_delay=1s", server.url());
    let (store, other) = (open(&url).await.unwrap(), open(&url).await.unwrap());
    let holder = claim(&fresh("dead"), SECOND);
    let asked = Instant::now();
    let hold = take(&store, &holder).await;
    let next = holds::claim_on(&holder.key, SECOND * 10, |_| ());
    let began = Instant::now();
    let taken = holds::wait(&other, &next, SECOND * 30).await;
    lateness::assert_within(other.profile().takeover(SECOND), began, "the next grant");
    // Its session began after it was asked for.
    let since = asked.elapsed();
    assert!(since + Duration::from_millis(500) >= SECOND * 3, "too early: {since:?}");
    assert_eq!(renewal(&store, &hold).await.unwrap(), Standing::Lost);
    other.release(&taken).await.unwrap();
    assert!(matches!(other.try_acquire(&next, until()).await.unwrap(), dlock_contract::Attempt::Acquired(_)));
}

/// With the limit of connections that agents have by default.
#[tokio::test]
async fn waiters_that_come_and_go_leave_connections_for_two_processes_at_one_agent() {
    let recipe = servers::Consul {
        extra: vec!["-hcl=limits{http_max_conns_per_client=200}".into()],
        ..servers::Consul::default()
    };
    let server = Instance::start(recipe).unwrap();
    let stores = [open(&server.url()).await.unwrap(), open(&server.url()).await.unwrap()];
    let claims: Vec<_> = (0..64).map(|number| claim(&fresh(&format!("crowd {number}")), LONG)).collect();
    let holds = futures::future::join_all(claims.iter().map(|claim| take(&stores[0], claim))).await;
    for _ in 0..4 {
        for store in &stores {
            let waiters: Vec<_> = claims.iter().map(|held| holds::claim_on(&held.key, LONG, |_| ())).collect();
            let wakes = futures::future::join_all(waiters.iter().map(|waiter| holds::stand(store, waiter))).await;
            let waiting: Vec<_> =
                wakes.into_iter().filter_map(|mut wake| wake.signal.take()).map(tokio::spawn).collect();
            for renewed in store.renew(&holds.iter().collect::<Vec<_>>()).await {
                assert!(matches!(renewed.unwrap(), Standing::Renewed(_)));
            }
            for waits in waiting {
                waits.abort();
            }
        }
    }
}
