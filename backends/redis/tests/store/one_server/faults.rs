//! Servers at their limits, and answers that the installed servers do not give.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Exchange, Queue, Released, Standing};
use dlock_testkit::holds::{claim, claim_on, stand, take, until};
use dlock_testkit::{Mode, Proxy, a_closed_store_opens_nothing};

use super::database::{Database, HOUR, SECOND, granted, unrenewed};
use crate::names::FENCE;

/// A release frees memory, and its work for waiters does not fail for lack of memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_hands_locks_on() {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let memory = |limit: &str| {
        let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", limit]).query(&mut server.raw()).unwrap();
    };
    let present = take(&one, &claim("k", HOUR)).await;
    let mut wake = stand(&two, &unrenewed("k")).await;
    memory("1");
    let error = one.try_acquire(&claim("other", HOUR), Queue::Leave).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("OOM")), "{error}");
    assert_eq!(one.release(&present).await.unwrap(), Released::Released);
    let hold = granted(&mut wake, 60 * SECOND).await.unwrap();
    // The same is true for a release that asks for the next caller of its process.
    assert!(matches!(two.renew(&[&hold]).await[..], [Ok(Standing::Renewed(_))]));
    let next = unrenewed("k");
    let asked_until = Clock::system().now().after(60 * SECOND);
    let (released, asked) = two.release_to(&hold, &next, asked_until).await.unwrap();
    assert_eq!(released, Released::Released);
    let Some(Attempt::Acquired(hold)) = asked else { panic!("{asked:?}") };
    assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
    // A caller cannot join the queue of a held lock, and its error says so.
    memory("0");
    let present = take(&one, &claim("k", HOUR)).await;
    memory("1");
    let error = two.try_acquire(&claim("k", HOUR), until()).await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error}");
    assert_eq!(one.release(&present).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
}

/// A short spike must not end waits that were there before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_keeps_its_place_at_a_server_without_memory() {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", HOUR)).await;
    let waiter = unrenewed("k");
    let _first = stand(&two, &waiter).await;
    let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).query(&mut server.raw()).unwrap();
    let mut wake = stand(&two, &waiter).await;
    let late = claim("k", HOUR);
    let error = two.try_acquire(&late, until()).await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error}");
    two.abandon(&late).await.unwrap();
    assert_eq!(one.release(&present).await.unwrap(), Released::Released);
    let hold = granted(&mut wake, 60 * SECOND).await.unwrap();
    assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_closed_opens_nothing() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    a_closed_store_opens_nothing(&redis, &[proxy], &claim("k", HOUR)).await;
}

/// Several requests are needed, and all of them leave before the first is answered: what one way costs is paid once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_are_renewed_by_requests_that_leave_together() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Arc::new(Redis::connect(&url, &Clock::system()).await.unwrap());
    let mut holds = Vec::new();
    for number in 100..356_u64 {
        let key = LockKey::new("test", Key::text("k").value(&number)).unwrap();
        holds.push(take(&*redis, &claim_on(&key, 60 * SECOND, |_| ())).await);
    }
    let holds = Arc::new(holds);
    proxy.keep();
    let renewal = |count: usize| {
        let (redis, holds) = (redis.clone(), holds.clone());
        tokio::spawn(async move { redis.renew(&holds.iter().take(count).collect::<Vec<_>>()).await })
    };
    let sent = || proxy.kept().iter().sum::<usize>();
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    let answered = async |renewing: tokio::task::JoinHandle<Vec<_>>| {
        proxy.deliver(&proxy.kept());
        let standings = renewing.await.unwrap();
        assert!(standings.iter().all(|standing| matches!(standing, Ok(Standing::Renewed(_)))));
    };
    // A request has at most a hundred holds. Its size shows that there is more than one request.
    let one = renewal(1);
    while sent() == 0 {
        pause().await;
    }
    let least = sent();
    answered(one).await;
    let all = renewal(256);
    let end = Instant::now() + 60 * SECOND;
    while sent() < 100 * least {
        assert!(Instant::now() < end, "{} bytes, and {least} for one hold", sent());
        pause().await;
    }
    answered(all).await;
}

/// A server with scripted answers.
fn server_that_says(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || while serve(&stream, &*answer).is_some() {});
        }
    });
    url
}

/// Answers one request after another until the client goes.
fn serve(mut stream: &TcpStream, answer: &dyn Fn(&[String]) -> String) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let words = (0..length(&mut reader)?).map(|_| word(&mut reader)).collect::<Option<Vec<_>>>()?;
        stream.write_all(answer(&words).as_bytes()).ok()?;
    }
}

fn length(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn word(reader: &mut impl BufRead) -> Option<String> {
    let mut word = vec![0; length(reader)? + 2];
    reader.read_exact(&mut word).ok()?;
    Some(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned())
}

/// The error of a server of this version when it is opened.
fn as_version(version: &str, words: &[String]) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    match &*words[0] {
        "HELLO" => "%1\r\n+proto\r\n:3\r\n".to_owned(),
        "ROLE" => format!("*1\r\n{}", bulk("master")),
        "INFO" => bulk(&format!("redis_version:{version}\r\n")),
        "CONFIG" => {
            let settings = ["maxmemory-policy", "noeviction", "appendonly", "yes"].map(bulk).concat();
            format!("%2\r\n{settings}")
        }
        "EVAL" if words[1].contains("acl_check_cmd") && version.starts_with('6') => {
            "-ERR Error running script: attempt to call field 'acl_check_cmd' (a nil value)\r\n".to_owned()
        }
        "EVAL" if words[1].contains("acl_check_cmd") => "*0\r\n".to_owned(),
        "EVAL" => ":1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

#[tokio::test]
async fn an_old_server_is_refused_and_the_error_names_the_version_that_is_needed() {
    let old = server_that_says(|words| as_version("6.2.14", words));
    let older = server_that_says(|words| match &*words[0] {
        "HELLO" => "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n".to_owned(),
        _ => as_version("5.0.14", words),
    });
    for url in [old, older] {
        let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
        let ErrorKind::Unsupported { need } = error.kind() else { panic!("{error}") };
        assert_eq!(need, "Redis 7.0 or newer");
        assert!(!error.is_retryable() && error.to_string().contains("older than Redis 7.0"), "{error}");
    }
}

/// Hosted servers rename the commands that their customers may not use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_was_renamed_is_named_when_the_store_is_opened() {
    for command in ["hello", "role", "eval", "evalsha", "set", "incrby", "pexpire", "time", "zadd", "hget"] {
        let server = Database::own(&["--rename-command", command, "elsewhere"]);
        for url in
            [server.url.clone(), format!("{}?keys=literal", server.url), format!("{}?layout=redisson", server.url)]
        {
            let registry = dlock::Registry::new();
            let error = registry.connect("store", &url).await.expect_err(command);
            let text = error.to_string();
            assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{command}: {text}");
            assert!(text.contains(&format!("`{command}` (")) && !error.is_retryable(), "{command}: {text}");
        }
    }
    // Needed by an option alone.
    let server = Database::own(&["--rename-command", "wait", "elsewhere"]);
    let url = format!("{}?wait_replicas=1", server.url);
    let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && error.to_string().contains("`wait` ("), "{error}");
    // It can do without.
    for command in ["wait", "info", "config", "script", "publish", "zrange"] {
        let server = Database::own(&["--rename-command", command, "elsewhere"]);
        let redis = server.open().await;
        let hold = take(&redis, &claim("k", HOUR)).await;
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    }
}

/// Refusals that a single server does not send: those after another one's script has written, and those of a part of a
/// cluster.
#[tokio::test]
async fn each_refusal_has_its_kind_its_text_and_its_code() {
    let unsupported = ErrorKind::Unsupported { need: "a URL that begins with redis-cluster://".into() };
    for (code, text, kind, says) in [
        ("UNKILLABLE", "Sorry the script already executed write commands", ErrorKind::Outage, "busy"),
        ("MASTERDOWN", "Link with MASTER is down", ErrorKind::Outage, "MASTERDOWN"),
        ("CLUSTERDOWN", "Hash slot not served", ErrorKind::Outage, "CLUSTERDOWN"),
        ("MOVED", "3999 127.0.0.1:6381", unsupported, "redis-cluster://"),
    ] {
        let url = server_that_says(move |words| match &*words[0] {
            "SET" => format!("-{code} {text}\r\n"),
            "INCRBY" => ":1\r\n".to_owned(),
            _ => as_version("7.0.15", words),
        });
        let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
        let error = redis.try_acquire(&claim("k", HOUR), Queue::Leave).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (&kind, Some(code)), "{error}");
        assert_eq!(error.is_retryable(), kind == ErrorKind::Outage, "{error}");
        assert!(error.to_string().contains(says) && !error.to_string().contains(text), "{error}");
    }
}

/// An attempt that finds the lock held looks who has it, in a second request. A lease that ends between the two, even the
/// asker's own, leaves a free lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_lease_ends_between_the_two_requests_of_an_attempt_is_granted() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    let again = claim("k", SECOND);
    let first = take(&redis, &again).await;
    proxy.set(Mode::Delay { to_server: SECOND * 2 / 3, to_client: Duration::ZERO });
    let second = take(&redis, &again).await;
    assert!(second.token > first.token, "the lease did not end between the two requests: nothing is proven");
}
