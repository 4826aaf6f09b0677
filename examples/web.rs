//! A web service whose handlers are locked: who comes while somebody is at it is told when to come back.
//!
//! `cargo run --example web`
//!
//! Two processes serve the same shop with axum. `dlock::Error` is an answer by itself: 423 Locked, with `Retry-After`.
//! Another handler has an error type of its own, and answers 409 Conflict with a text of its own. The parent sends real
//! requests to both processes, and exits with an error if an answer is not what it must be.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use common::{Failure, Job, Stage, Worker, ensure, say};
use dlock::distributed_lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The signal to go on, as the state of the handlers. A handler waits for it, so the parent knows that it is inside.
type Shop = Arc<Notify>;

/// The shortest way: the lock's error is the answer. Needs dlock's feature `axum`.
#[distributed_lock(key = "order:<id>", ttl = "30s", wait = "none")]
async fn pay(State(shop): State<Shop>, Path(id): Path<u64>) -> Result<String, dlock::Error> {
    say(format!("paying {id}"));
    shop.notified().await;
    Ok(format!("order {id} is paid"))
}

/// The same lock, and an error of the service's own.
#[distributed_lock(key = "order:<id>", ttl = "30s", wait = "200ms")]
async fn cancel(Path(id): Path<u64>) -> Result<String, CancelError> {
    if id == 0 { Err(CancelError::NoSuchOrder) } else { Ok(format!("order {id} is cancelled")) }
}

#[derive(Debug, thiserror::Error)]
enum CancelError {
    #[error("no such order")]
    NoSuchOrder,
    #[error("the order is being changed")]
    Lock(#[from] dlock::Error),
}

impl IntoResponse for CancelError {
    fn into_response(self) -> Response {
        let text = self.to_string();
        match self {
            Self::NoSuchOrder => (StatusCode::NOT_FOUND, text).into_response(),
            Self::Lock(error) if error.is_contention() => {
                // When to ask again, if the store could tell; in whole seconds, rounded up.
                let after = error.retry_after().unwrap_or(Duration::from_secs(1)).as_millis().div_ceil(1000);
                (StatusCode::CONFLICT, [(RETRY_AFTER, after.to_string())], text).into_response()
            }
            Self::Lock(error) => error.into_response(),
        }
    }
}

/// One process of the service.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let shop = Shop::default();
    let service = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/orders/{id}/cancel", post(cancel))
        .with_state(shop.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(format!("port {}", listener.local_addr()?.port()));
    tokio::select! {
        served = axum::serve(listener, service) => Ok(served?),
        // The parent's first order lets the payment end, its second one the process.
        ended = async {
            job.order().await?;
            shop.notify_one();
            job.order().await.map(drop)
        } => ended,
    }
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let mut servers = stage.start_all(2)?;
    let [first, second]: &mut [Worker; 2] = servers.as_mut_slice().try_into()?;
    let (one, two): (u16, u16) = (first.hear("port").await?.parse()?, second.hear("port").await?.parse()?);

    let payment = tokio::spawn(exchange(one, "/orders/7/pay"));
    first.hear("paying 7").await?;
    println!("Order 7 is being paid in one process. Requests to the other:");
    expect(&send(two, "/orders/7/pay").await?, 423, true)?;
    expect(&send(two, "/orders/7/cancel").await?, 409, true)?;
    expect(&send(two, "/orders/8/cancel").await?, 200, false)?;
    expect(&send(two, "/orders/0/cancel").await?, 404, false)?;
    first.order("go on").await?;
    expect(&payment.await??, 200, false)?;
    println!("The payment has ended:");
    expect(&send(two, "/orders/7/cancel").await?, 200, false)?;
    for mut server in servers {
        server.order("let it end").await?;
        server.order("end").await?;
        server.end().await?;
    }
    Ok(())
}

fn expect(answer: &str, status: u16, retry: bool) -> Result<(), Failure> {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
    let retry_after = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    println!(
        "  {}{}",
        answer.lines().next().unwrap_or_default(),
        retry_after.map_or(String::new(), |s| format!(", retry after {s} s"))
    );
    let seconds = retry_after.and_then(|seconds| seconds.parse::<u32>().ok());
    let good =
        head.starts_with(&format!("http/1.1 {status} ")) && seconds.is_some_and(|s| (1..=5).contains(&s)) == retry;
    ensure(good, || format!("it should be {status}, but it is {answer:?}"))
}

/// A request as any client would send it.
async fn send(port: u16, path: &'static str) -> Result<String, Failure> {
    let answer = tokio::time::timeout(Duration::from_secs(5), exchange(port, path)).await;
    answer.map_err(|_| format!("no answer to {path}"))?
}

async fn exchange(port: u16, path: &'static str) -> Result<String, Failure> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    server.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    server.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
