//! How pages end: with their browser, and with the service.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::live::{Page, console, get, memory};

#[tokio::test]
async fn a_page_ends_when_its_browser_goes() {
    let router = console(&memory()).router();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, router.clone()).into_future());
    let mut browser = TcpStream::connect(address).await.unwrap();
    browser.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(browser.read(&mut [0; 1024]).await.unwrap() > 0);
    // Another page on the same service sees both, and then itself alone.
    let mut other = Page::open(&router, "").await;
    other.until("about", |told| told["pages"] == 2).await;
    drop(browser);
    other.until("about", |told| told["pages"] == 1).await;
    server.abort();
}

#[tokio::test]
async fn two_consoles_on_one_service_do_not_disturb_each_other() {
    let registry = memory();
    let (one, other) = (console(&registry).router(), console(&registry).router());
    let (mut first, mut second) = (Page::open(&one, "").await, Page::open(&other, "").await);
    for page in [&mut first, &mut second] {
        page.until("about", |told| told["pages"] == 1).await;
    }
    let guard = registry.lock("both").acquire().await.unwrap();
    for page in [&mut first, &mut second] {
        page.until("locks", |told| told["locks"][0]["key"] == "both").await;
        page.until("activity", |told| told["names"][0]["held"] == 1).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn no_more_pages_are_open_than_a_service_can_bear() {
    let router = console(&memory()).router();
    let mut pages = Vec::new();
    for _ in 0..32 {
        pages.push(Page::open(&router, "").await);
    }
    assert_eq!(get(&router, "/live").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(pages.pop());
    assert_eq!(get(&router, "/live").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_shutdown_of_the_locks_ends_the_pages_so_that_the_server_can_end() {
    let registry = memory();
    let router = console(&registry).router();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(server.into_future());
    let mut browser = TcpStream::connect(address).await.unwrap();
    browser.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(browser.read(&mut [0; 1024]).await.unwrap() > 0);
    stop.send(()).unwrap();
    registry.shutdown(Duration::from_secs(60)).await;
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(60), browser.read_to_end(&mut rest)).await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(60), server).await.unwrap().unwrap().unwrap();
}
