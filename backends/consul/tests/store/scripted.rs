//! A scripted server, which knows the requests that it gets: the parameters that only Consul Enterprise understands, and
//! the number of queries that listen.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use dlock::{Key, LockKey};
use dlock_contract::{Backend, Note, Signal};
use dlock_testkit::holds::{claim, claim_on, stand, take};
use dlock_testkit::wait_until;

use crate::server::{LOCK, LONG, SECOND, fresh, open};

/// Answers requests as Consul does, as far as these tests send any.
struct Script {
    address: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The first lines and headers of all requests.
    heard: Vec<String>,
    sessions: Vec<String>,
    /// The index of the last change of a session.
    index: u64,
    /// How many lists of sessions were asked for at once, and how many after a change.
    queries: [usize; 2],
    /// The queries that wait for a change now, and the most at a time.
    listening: usize,
    most_listening: usize,
}

impl Script {
    fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State {
            heard: Vec::new(),
            sessions: Vec::new(),
            index: 7,
            queries: [0, 0],
            listening: 0,
            most_listening: 0,
        };
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Self { address, state: Mutex::new(state), changed: Condvar::new() });
        let serving = script.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, script) = (stream.unwrap(), serving.clone());
                std::thread::spawn(move || script.serve(stream));
            }
        });
        script
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    return;
                }
            }
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            self.state().heard.push(head.clone());
            let (status, answer) = self.answer(&head, &String::from_utf8(body).unwrap());
            let (length, index) = (answer.len(), self.state().index);
            let head = format!("HTTP/1.1 {status}\r\nX-Consul-Index: {index}\r\nContent-Length: {length}\r\n\r\n");
            // The client may have given up.
            let _ = stream.write_all((head + &answer).as_bytes());
        }
    }

    fn answer(&self, head: &str, body: &str) -> (&'static str, String) {
        let path = head.split_whitespace().nth(1).unwrap();
        let path = path.split('?').next().unwrap();
        if path == "/v1/session/create" && !body.contains("\"1ms\"") {
            let id = self.change(|sessions| {
                sessions.push(format!("session-{}", fastrand::u64(..)));
                sessions.last().unwrap().clone()
            });
            return ("200 OK", format!(r#"{{"ID":"{id}"}}"#));
        }
        if let Some(id) = path.strip_prefix("/v1/session/destroy/") {
            self.change(|sessions| sessions.retain(|session| session != id));
            return ("200 OK", "true".into());
        }
        if path.starts_with("/v1/session/node/") {
            return ("200 OK", self.list(head));
        }
        // Another tool holds it when it is read, and frees it at once when somebody waits for that.
        if path.contains("theirs") {
            let (session, index) = if head.contains("index=") { ("null", 8) } else { (r#""s""#, 7) };
            let key = path.trim_start_matches("/v1/kv/");
            let entry =
                format!(r#"{{"Key":"{key}","Flags":{LOCK},"Value":null,"Session":{session},"ModifyIndex":{index}}}"#);
            return ("200 OK", format!("[{entry}]"));
        }
        answer(path, body)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<String>) -> T) -> T {
        let mut state = self.state();
        state.index += 1;
        let changed = change(&mut state.sessions);
        self.changed.notify_all();
        changed
    }

    /// The sessions; for a blocking query after the next change.
    fn list(&self, head: &str) -> String {
        let after = head.split_once("index=").and_then(|(_, rest)| rest.split(['&', ' ']).next()?.parse::<u64>().ok());
        let mut state = self.state();
        state.queries[usize::from(after.is_some())] += 1;
        if let Some(index) = after {
            state.listening += 1;
            state.most_listening = state.most_listening.max(state.listening);
            state = self.changed.wait_while(state, |state| state.index <= index).unwrap();
            state.listening -= 1;
        }
        let sessions: Vec<_> = state.sessions.iter().map(|id| format!(r#"{{"ID":"{id}"}}"#)).collect();
        format!("[{}]", sessions.join(","))
    }
}

/// The answers that depend on nothing before.
fn answer(path: &str, body: &str) -> (&'static str, String) {
    let text = match path {
        "/v1/session/create" => {
            return (
                "500 Internal Server Error",
                "Invalid Session TTL '1000000', must be between [10s=24h0m0s]".into(),
            );
        }
        path if path.starts_with("/v1/session/info/") => {
            let id = path.rsplit('/').next().unwrap();
            format!(r#"[{{"ID":"{id}","Node":"the node"}}]"#)
        }
        "/v1/txn" => {
            let key = body.split("\"Key\":\"").nth(1).unwrap().split('"').next().unwrap();
            let entry = format!(r#"{{"Key":"{key}","Flags":0,"Value":null,"ModifyIndex":7}}"#);
            format!(r#"{{"Results":[{{"KV":{entry}}}],"Errors":null}}"#)
        }
        path if path.starts_with("/v1/kv/") => return ("404 Not Found", String::new()),
        _ => "true".to_owned(),
    };
    ("200 OK", text)
}

#[tokio::test]
async fn datacenter_namespace_partition_and_token_are_sent_with_each_request() {
    let script = Script::start();
    let host = script.address;
    let options = "dc=east&namespace=team%20a&partition=p1";
    let store = open(&format!("consul://:the-token@{host}?{options}")).await.unwrap();
    let hold = take(&store, &claim(&fresh("enterprise"), LONG)).await;
    store.renew(&[&hold]).await.remove(0).unwrap();
    store.release(&hold).await.unwrap();
    store.close().await;
    let heard = script.state().heard.clone();
    assert!(heard.len() > 8, "{heard:?}");
    for head in &heard {
        assert!(head.contains("dc=east&ns=team%20a&partition=p1"), "{head}");
        assert!(head.to_lowercase().contains("\r\nx-consul-token: the-token\r\n"), "{head}");
    }
}

#[tokio::test]
async fn without_options_none_of_them_is_sent() {
    let script = Script::start();
    let store = open(&format!("consul://{}", script.address)).await.unwrap();
    store.close().await;
    for head in &script.state().heard {
        let head = head.to_lowercase();
        assert!(!["dc=", "ns=", "partition=", "x-consul-token"].iter().any(|word| head.contains(word)), "{head}");
    }
}

#[tokio::test]
async fn a_waiter_beside_other_tools_takes_the_lock_with_one_request_after_the_news() {
    let script = Script::start();
    let store = open(&format!("consul://{}?keys=literal", script.address)).await.unwrap();
    let key = LockKey::new("shop", Key::new().value(&fresh("theirs"))).unwrap();
    let waiter = claim_on(&key, LONG, |_| ());
    let mut wake = stand(&store, &waiter).await;
    assert_eq!(wake.held_by.take().unwrap().as_str(), Note::FOREIGN_CLIENT);
    assert!(matches!(wake.signal.take().unwrap().await.unwrap(), Signal::Ask));
    script.state().heard.clear();
    take(&store, &waiter).await;
    let heard = script.state().heard.clone();
    // The end of the probe may come late.
    let heard: Vec<_> = heard.iter().filter(|head| !head.contains("/session/")).collect();
    assert!(heard.len() == 1 && heard[0].starts_with("PUT /v1/txn"), "{heard:?}");
}

#[tokio::test]
async fn many_holds_listen_by_one_blocking_query() {
    let script = Script::start();
    let store = open(&format!("consul://{}", script.address)).await.unwrap();
    let mut holds = Vec::new();
    for _ in 0..12 {
        holds.push(take(&store, &claim(&fresh("many"), LONG)).await);
    }
    let mut listening: Vec<_> =
        holds.iter().map(|hold| tokio::spawn(hold.session.as_ref().unwrap().ended().unwrap())).collect();
    wait_until("a blocking query", async || script.state().listening > 0).await.unwrap();
    // The session of the note of the form, and those of the twelve holds, in their order. The session of the probe has ended.
    script.change(|sessions| sessions.remove(1));
    let told = tokio::time::timeout(SECOND * 60, listening.remove(0)).await;
    told.expect("the holder was not told").unwrap();
    // It begins after a pause, in which a query of another hold would have begun too.
    wait_until("the next blocking query", async || script.state().queries[1] > 1).await.unwrap();
    let state = script.state();
    assert_eq!((state.queries, state.most_listening), ([1, 2], 1), "not all holds share one query");
    assert!(listening.iter().all(|ended| !ended.is_finished()), "a holder was told of another one's end");
}
