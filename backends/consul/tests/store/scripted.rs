//! What only Consul Enterprise understands: a scripted server shows that the parameters are sent with each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use dlock_contract::Backend;
use dlock_testkit::holds::{claim, take};

use crate::server::{LONG, fresh, open};

/// The first lines and headers of all requests, and one answer for each path.
fn script() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heard) = (listener.local_addr().unwrap().to_string(), Arc::new(Mutex::new(Vec::new())));
    let log = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, log) = (stream.unwrap(), log.clone());
            std::thread::spawn(move || serve(stream, &log));
        }
    });
    (address, heard)
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        let (status, answer) = answer(&head, &String::from_utf8(body).unwrap());
        log.lock().unwrap().push(head);
        let length = answer.len();
        write!(stream, "HTTP/1.1 {status}\r\nX-Consul-Index: 7\r\nContent-Length: {length}\r\n\r\n{answer}").unwrap();
    }
}

fn answer(head: &str, body: &str) -> (&'static str, String) {
    let path = head.split_whitespace().nth(1).unwrap();
    let text = match path.split('?').next().unwrap() {
        "/v1/session/create" if body.contains("\"1ms\"") => {
            return (
                "500 Internal Server Error",
                "Invalid Session TTL '1000000', must be between [10s=24h0m0s]".into(),
            );
        }
        "/v1/session/create" => r#"{"ID":"the-session"}"#.to_owned(),
        "/v1/session/info/the-session" => r#"[{"ID":"the-session","Node":"the node"}]"#.to_owned(),
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
    let (host, heard) = script();
    let options = "dc=east&namespace=team%20a&partition=p1";
    let store = open(&format!("consul://:the-token@{host}?{options}")).await.unwrap();
    let hold = take(&store, &claim(&fresh("enterprise"), LONG)).await;
    store.renew(&[&hold]).await.remove(0).unwrap();
    store.release(&hold).await.unwrap();
    store.close().await;
    let heard = heard.lock().unwrap().clone();
    assert!(heard.len() > 8, "{heard:?}");
    for head in &heard {
        assert!(head.contains("dc=east&ns=team%20a&partition=p1"), "{head}");
        assert!(head.to_lowercase().contains("\r\nx-consul-token: the-token\r\n"), "{head}");
    }
}

#[tokio::test]
async fn without_options_none_of_them_is_sent() {
    let (host, heard) = script();
    let store = open(&format!("consul://{host}")).await.unwrap();
    store.close().await;
    for head in heard.lock().unwrap().iter() {
        let head = head.to_lowercase();
        assert!(!["dc=", "ns=", "partition=", "x-consul-token"].iter().any(|word| head.contains(word)), "{head}");
    }
}
