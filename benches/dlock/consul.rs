//! A lock in Consul that nobody else wants. The floor is the same requests, sent raw and one after the other.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::{self, Instance};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failed;
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "bench-consul")]
async fn locked(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

const CONTENDERS: [&str; 2] = ["same requests, raw", "dlock"];
const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(400);

pub(crate) fn row(tasks: usize) -> Result<Row, Failed> {
    let server = server()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match runtime.block_on(Registry::global().connect("bench-consul", &server.url())) {
        // By the row before.
        Err(error) if *error.kind() == dlock::ErrorKind::AlreadyRegistered => {}
        connected => connected?,
    }
    let mut rounds: Vec<Vec<(f64, f64)>> = vec![Vec::new(); CONTENDERS.len()];
    // The first turns warm connections up, and are not counted.
    for round in 0..=ROUNDS {
        let mut order = [0, 1];
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let measured = runtime.block_on(measure(contender, tasks, server))?;
            if round > 0 {
                rounds[contender].push(measured);
            }
        }
    }
    let mut row = Row {
        name: format!("consul-{tasks}"),
        about: format!(
            "Acquire and release on Consul, {tasks} task(s) with a key each: a look, a session, the acquisition, the release, \
             the end of the session. dlock does not wait for the last one."
        ),
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    // Taken round by round, so that a slow second of the disk hits both sides.
    let floors = rounds[0].clone();
    for (name, rounds) in CONTENDERS.iter().zip(rounds) {
        let ratio = |pick: fn(&(f64, f64)) -> f64| {
            median(rounds.iter().zip(&floors).map(|(own, floor)| pick(own) / pick(floor)).collect())
        };
        let figures = vec![
            ("cycles/s", median(rounds.iter().map(|round| round.0).collect())),
            ("p50 µs", median(rounds.iter().map(|round| round.1).collect())),
            ("throughput × floor", ratio(|round| round.0)),
            ("p50 × floor", ratio(|round| round.1)),
        ];
        row.contenders.push(Contender { name: (*name).to_owned(), figures });
    }
    let time = 1.0 / row.figure("dlock", "throughput × floor");
    row.aim("time of a cycle at most 1.15 × that of the same requests", time, time <= 1.15);
    Ok(row)
}

/// One for all rows, since the registry keeps to its address.
fn server() -> Result<&'static Instance, Failed> {
    static SERVER: OnceLock<Instance> = OnceLock::new();
    if SERVER.get().is_none() {
        let _ = SERVER.set(Instance::start(servers::Consul::default())?);
    }
    SERVER.get().ok_or_else(|| "no server".into())
}

/// Cycles per second, and the median of a cycle in µs.
async fn measure(contender: usize, tasks: usize, server: &Instance) -> Result<(f64, f64), Failed> {
    let start = Instant::now();
    let end = start + ROUND;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let address = server.addr();
            tokio::spawn(async move {
                let mut floor = Floor(TcpStream::connect(address).await?);
                floor.0.set_nodelay(true)?;
                let mut times = Vec::new();
                loop {
                    let begun = Instant::now();
                    if begun >= end {
                        return Ok::<_, Failed>(times);
                    }
                    if contender == 0 {
                        floor.cycle(task).await?
                    } else {
                        locked(task).await?
                    }
                    times.push(begun.elapsed().as_nanos() as u64);
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await??);
    }
    let wall = start.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok((times.len() as f64 / wall, percentile(&times, 0.5) as f64 / 1000.0))
}

/// A connection that is kept, and no client library.
struct Floor(TcpStream);

impl Floor {
    async fn cycle(&mut self, task: usize) -> Result<(), Failed> {
        let key = format!("floor:{task}");
        let create = r#"{"Name":"floor","TTL":"30s","LockDelay":"15s","Behavior":"delete","Checks":[]}"#;
        self.ask("GET", &format!("kv/{key}"), "").await?;
        let made = self.ask("PUT", "session/create", create).await?;
        let session = made.split('"').nth(3).ok_or("no session")?.to_owned();
        let absent = format!(r#"{{"KV":{{"Verb":"check-not-exists","Key":"{key}"}}}}"#);
        let lock = format!(r#"{{"KV":{{"Verb":"lock","Key":"{key}","Session":"{session}","Value":"aGVsbG8="}}}}"#);
        self.ask("PUT", "txn", &format!("[{absent},{lock}]")).await?;
        let held = format!(r#"{{"KV":{{"Verb":"check-session","Key":"{key}","Session":"{session}"}}}}"#);
        let delete = format!(r#"{{"KV":{{"Verb":"delete","Key":"{key}"}}}}"#);
        self.ask("PUT", "txn", &format!("[{held},{delete}]")).await?;
        self.ask("PUT", &format!("session/destroy/{session}"), "").await?;
        Ok(())
    }

    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<String, Failed> {
        let length = body.len();
        let head = format!("{method} /v1/{path} HTTP/1.1\r\nHost: consul\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all((head + body).as_bytes()).await?;
        let mut reply = Vec::new();
        loop {
            if self.0.read_buf(&mut reply).await? == 0 {
                return Err("the agent has closed the connection".into());
            }
            let text = String::from_utf8_lossy(&reply);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
            if body.len() >= length.ok_or("an answer without a length")? {
                let status = head.split(' ').nth(1).unwrap_or_default();
                return if ["200", "404"].contains(&status) { Ok(body.to_owned()) } else { Err(text.into()) };
            }
        }
    }
}
