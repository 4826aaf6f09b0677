//! Sessions: which ttls there are, who shares one, and how it ends.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use dlock::backends::zookeeper::ZooKeeper;
use dlock::backends::zookeeper::client::Client;
use dlock::backends::zookeeper::internal::{self, session_of};
use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Durability, Fencing, Hold, Queue, Released, Standing};
use dlock_store::background;
use dlock_testkit::holds::{claim_on, confirm, stand, take, token, until};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::{Mode, Proxy, a_closed_store_opens_nothing, in_real_time, lateness, wait_until};

use crate::kit::{TTL, answered, claim, line, lock, opened, own, path, process, raw, shared};

/// Whether the server knows the session of this id. It may know others for long: an opening that was given up on a busy machine
/// leaves one that lasts as long as the server allows, ten minutes here.
fn knows(server: &Instance, id: i64) -> bool {
    let id = format!("{id:#x}");
    server.ask("dump").unwrap().lines().any(|line| line.trim().trim_end_matches(':') == id)
}

#[tokio::test]
async fn the_servers_set_the_ttls() {
    let ms = Duration::from_millis;
    let profile = process().await.profile().clone();
    // The shortest session that is asked for has 500 ms, and half a tick of that is kept back.
    assert_eq!((profile.ttl.min, profile.ttl.max, profile.ttl.step), (ms(400), ms(599_900), ms(1)));
    assert_eq!((profile.fencing, profile.durability), (Fencing::Monotonic, Durability::Consensus));
    assert!(profile.fair && profile.read_write && profile.permits && !profile.expires_alone);

    let settings = ["minSessionTimeout=4000", "maxSessionTimeout=8000"].map(str::to_owned).into();
    let strict = Instance::start(servers::ZooKeeper { settings, ..servers::ZooKeeper::default() }).unwrap();
    let store = opened(&strict.url()).await;
    assert_eq!((store.profile().ttl.min, store.profile().ttl.max), (ms(3900), ms(7900)));
    let long = claim_on(&lock("long"), ms(7901), |_| ());
    let error = store.try_acquire(&long, Queue::Leave).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::TtlOutOfRange { min: ms(3900), max: ms(7900) });
    assert!(!error.may_have_left());
}

/// The shortest session says nothing about the tick if it is configured to be less than two ticks: 6 of 25 kills of the
/// holder's only server then gave two holders.
#[tokio::test]
async fn half_a_tick_is_kept_back_whatever_the_shortest_session_is() {
    let ms = Duration::from_millis;
    for whitelist in ["srvr", "srvr,conf"] {
        let mut settings = vec!["tickTime=2000".to_owned(), "minSessionTimeout=500".to_owned()];
        settings.push(format!("4lw.commands.whitelist={whitelist}"));
        let server = Instance::start(servers::ZooKeeper { settings, ..servers::ZooKeeper::default() }).unwrap();
        let profile = opened(&server.url()).await.profile().clone();
        assert_eq!((profile.ttl.min, profile.ttl.max), (ms(250), ms(599_000)), "{whitelist}");
        assert_eq!(profile.takeover_delay, ms(4500), "{whitelist}");
    }
}

#[tokio::test]
async fn holds_of_one_ttl_share_a_session_and_others_have_their_own() {
    let one = process().await;
    let holds = [
        take(&one, &claim(&lock("a"))).await,
        take(&one, &claim(&lock("b"))).await,
        take(&one, &claim_on(&lock("c"), TTL * 2, |_| ())).await,
        take(&one, &claim_on(&lock("d"), TTL, |claim| claim.renewed = false)).await,
    ];
    let [a, b, c, d] = holds.each_ref().map(|hold| hold.group().unwrap());
    assert!(a == b && a != c && a != d && c != d);
    for hold in &holds {
        assert_eq!(one.release(hold).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn a_session_in_which_nothing_is_renewed_ends_although_the_client_lives() {
    let server = own();
    let (one, raw) = (opened(&server.url()).await, raw(&server.url()).await);
    let key = lock("idle");
    // Short, since the test waits for its end, and longer than a busy machine needs to take the lock.
    let hold = take(&one, &claim_on(&key, Duration::from_secs(3), |_| ())).await;
    let (ended, id) = (hold.session.as_ref().unwrap().ended().unwrap(), session_of(&hold).unwrap().id().0);
    ended.await;
    assert!(Clock::system().now() >= hold.validity.deadline(), "the session ended before the deadline of its hold");
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    while !line(&raw, &path(&one, &key)).await.is_empty() {
        tokio::task::yield_now().await;
    }
    while knows(&server, id) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_waiter_keeps_its_session_alive() {
    let (one, other) = (process().await, process().await);
    let key = lock("patient");
    // A busy machine keeps it alive within it.
    let ttl = Duration::from_secs(8);
    let hold = take(&one, &claim_on(&key, TTL * 10, |_| ())).await;
    let mut wake = stand(&other, &claim_on(&key, ttl, |_| ())).await;
    let signal = wake.signal.as_mut().unwrap();
    // The passing of its ttl, and of a second more, is what is tested.
    assert!(tokio::time::timeout(ttl + Duration::from_secs(1), signal.as_mut()).await.is_err());
    one.release(&hold).await.unwrap();
    let dlock_contract::Signal::Granted(next) = signal.await.unwrap() else { panic!("it lost its place") };
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)));
}

/// Ends a session as another client can who knows it: it takes the session over and closes it, while its owner is cut off.
pub(crate) async fn expire(hold: &Hold, server: &Instance, owner: &[Proxy]) {
    owner.iter().for_each(|proxy| proxy.set(Mode::Refuse));
    let connector = Client::connector().with_session(session_of(hold).unwrap());
    let thief = connector.connect(&server.addr().to_string()).await.unwrap();
    let mut state = thief.state_watcher();
    drop(thief);
    while !state.changed().await.is_terminated() {}
    owner.iter().for_each(|proxy| proxy.set(Mode::Pass));
}

#[tokio::test]
async fn a_session_that_another_client_ends_is_told_and_built_anew() {
    let server = own();
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let (one, other) = (opened(&url).await, opened(&server.url()).await);
    let key = lock("expired");
    // It does not end by itself meanwhile.
    let long = || claim_on(&key, TTL * 10, |_| ());
    let hold = take(&one, &long()).await;
    let ended = hold.session.as_ref().unwrap().ended().unwrap();
    expire(&hold, &server, std::slice::from_ref(&proxy)).await;
    ended.await;
    assert!(Clock::system().now() < hold.validity.deadline(), "the end of the session was not told");
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    let next = take(&other, &claim(&key)).await;
    assert!(token(&next) > token(&hold));
    other.release(&next).await.unwrap();
    // The same process goes on in a new session.
    let again = take(&one, &long()).await;
    assert!(again.group() != hold.group() && token(&again) > token(&next));
    one.release(&again).await.unwrap();
}

#[tokio::test]
async fn a_waiter_whose_session_ended_queues_again() {
    let server = own();
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let (one, other) = (opened(&server.url()).await, opened(&url).await);
    let key = lock("queues");
    // Nothing ends by itself meanwhile.
    let long = |key: &_| claim_on(key, TTL * 10, |_| ());
    // A hold that shares the waiter's session.
    let beside = take(&other, &long(&lock("beside"))).await;
    let hold = take(&one, &long(&key)).await;
    let waiter = long(&key);
    let mut wake = stand(&other, &waiter).await;
    expire(&beside, &server, std::slice::from_ref(&proxy)).await;
    let news = wake.signal.as_mut().unwrap().await;
    assert!(!matches!(news, Ok(dlock_contract::Signal::Granted(_))), "granted in a session that has ended");
    // Until the client knows that its session has ended.
    let mut answer = Err(dlock::Error::outage("not asked yet"));
    let placed = wait_until("a new place", async || {
        answer = other.try_acquire(&waiter, until()).await;
        matches!(answer, Ok(Attempt::Contended(_)))
    });
    placed.await.unwrap_or_else(|_| panic!("{answer:?}"));
    let Ok(Attempt::Contended(mut wake)) = answer else { unreachable!() };
    one.release(&hold).await.unwrap();
    let dlock_contract::Signal::Granted(next) = wake.signal.as_mut().unwrap().await.unwrap() else { panic!() };
    assert_ne!(next.group(), beside.group());
    other.release(&next).await.unwrap();
}

#[tokio::test]
async fn closing_the_store_closes_its_sessions() {
    lateness::watch();
    let before = Instant::now();
    let server = own();
    let one = opened(&server.url()).await;
    let key = lock("closed");
    let hold = take(&one, &claim(&key)).await;
    let id = session_of(&hold).map(|session| session.id().0);
    // A session ends if its process stands still for longer than the ttl.
    let id = id.filter(|id| knows(&server, *id));
    let id = id.unwrap_or_else(|| panic!("no session{}", lateness::verdict(before, hold.claim.ttl)));
    one.close().await;
    assert!(!knows(&server, id));
    assert!(shared() != server.url());
}

#[tokio::test]
async fn a_store_that_was_closed_opens_nothing() {
    let (proxy, url) = Proxy::in_front_of(&shared()).unwrap();
    a_closed_store_opens_nothing(&opened(&url).await, &[proxy], &claim(&lock("closed"))).await;
}

#[tokio::test]
async fn nothing_is_granted_in_a_session_that_was_given_up_while_the_store_was_asked() {
    let (server, clock) = (own(), Clock::manual());
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let raw = raw(&server.url()).await;
    let key = lock("late");
    let store = in_real_time(&clock, async {
        let store = ZooKeeper::open(&url, &clock).await.unwrap();
        // So the attempt below makes its own node alone, and nothing before it confirms the session.
        let first = take(&store, &claim(&key)).await;
        store.release(&first).await.unwrap();
        store
    });
    let store = store.await;
    clock.advance(TTL * 7 / 10);
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_secs(1) });
    let (asked, waits) = (claim(&key), until());
    let mut attempt = store.try_acquire(&asked, waits);
    let place = path(&store, &key);
    let answer = tokio::select! {
        answer = &mut attempt => answer,
        // On a busy machine the server ends the session first. Then the attempt waits for the manual clock.
        () = tokio::time::sleep(Duration::from_secs(120)) => panic!("the session has ended before: nothing is proven"),
        () = async {
            wait_until("the node of the attempt", async || !line(&raw, &place).await.is_empty()).await.unwrap();
            // The idle session ends now, and the answer is on its way.
            clock.advance(TTL * 4 / 10);
            std::future::pending().await
        } => unreachable!(),
    };
    assert_eq!(
        answer.unwrap_err().kind(),
        &ErrorKind::Outage,
        "a lock was granted in a session that is about to close"
    );
    proxy.set(Mode::Pass);
    store.abandon(&asked).await.unwrap();
    wait_until("the session to end", async || line(&raw, &place).await.is_empty()).await.unwrap();
}

/// Closes a session as another client does, while its owner is connected. The owner may be quicker and take it back.
fn close_from_beside(hold: &Hold, server: &Instance) {
    let id = session_of(hold).unwrap().id().0;
    // The password is the first output of Java's generator of random numbers for this seed.
    let (factor, mask) = (0x5_DEEC_E66D_u64, (1_u64 << 48) - 1);
    let mut seed = (id as u64 ^ 0xB341_5C00 ^ factor) & mask;
    let mut message = [0, 0, 0, 45, 0, 0, 0, 0].to_vec();
    message.extend([0; 8]);
    message.extend(10_000_i32.to_be_bytes());
    message.extend(id.to_be_bytes());
    message.extend(16_i32.to_be_bytes());
    for _ in 0..4 {
        seed = (seed.wrapping_mul(factor) + 0xB) & mask;
        message.extend(((seed >> 16) as u32).to_le_bytes());
    }
    message.push(0);
    let mut stream = std::net::TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(&message).unwrap();
    let close: Vec<u8> = [8_i32, 1, -11].into_iter().flat_map(i32::to_be_bytes).collect();
    if stream.read_exact(&mut [0; 41]).and_then(|()| stream.write_all(&close)).is_ok() {
        // The server closes the connection after that.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// The end of the session breaks its connection, so the release gets no answer.
#[tokio::test]
async fn a_release_after_another_client_ended_the_session_says_that_the_lock_was_lost() {
    let server = own();
    let (one, raw) = (opened(&server.url()).await, raw(&server.url()).await);
    for way in ["release", "exchange"] {
        for _ in 0..10 {
            let (key, long) = (lock("closed"), TTL * 10);
            let (first, next) = (claim_on(&key, long, |_| ()), claim_on(&key, long, |_| ()));
            let Attempt::Acquired(hold) = answered(async || one.try_acquire(&first, Queue::Leave).await).await else {
                panic!("the lock is held")
            };
            let is_closed = async || {
                close_from_beside(&hold, &server);
                line(&raw, &path(&one, &key)).await.is_empty()
            };
            wait_until("the session to be closed", is_closed).await.unwrap();
            let released = answered(async || match way {
                "release" => one.release(&hold).await,
                _ => {
                    let until = hold.validity.deadline();
                    one.exchange().unwrap().release_to(&hold, &next, until).await.map(|(released, _)| released)
                }
            });
            assert_eq!(released.await, Released::NotOwner, "{way}");
            // No abandon follows: the answer says that nothing of the next claim is in the store.
            assert_eq!(internal::places(&one), 0, "{way}");
        }
    }
}

/// A process that stood still for longer than the ttl finds the end of its session and a late confirmation at once.
#[tokio::test]
async fn a_session_whose_time_is_over_is_not_revived_by_a_late_confirmation() {
    let clock = Clock::manual();
    let held = in_real_time(&clock, async {
        let store = ZooKeeper::open(&shared(), &clock).await.unwrap();
        let hold = take(&store, &claim(&lock("late"))).await;
        (store, hold)
    });
    let (_store, hold) = held.await;
    clock.advance(TTL * 7 / 10);
    let asked = clock.now();
    // The task that closes the session must not be quicker than this test.
    let (stands, has_stopped) = std::sync::mpsc::channel();
    let (goes_on, continues) = std::sync::mpsc::channel::<()>();
    background().unwrap().spawn(async move {
        stands.send(()).unwrap();
        let _ = continues.recv();
    });
    has_stopped.recv().unwrap();
    clock.advance(TTL * 4 / 10);
    assert!(!internal::lives(&hold));
    internal::confirm(&hold, asked);
    let is_revived = internal::lives(&hold);
    drop(goes_on);
    assert!(!is_revived, "a release has said that the lock is lost, and its node would stay");
}
