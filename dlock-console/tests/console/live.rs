//! A page that reads its news, as a browser does.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use dlock::Registry;
use dlock::backends::memory::Memory;
use dlock_console::Console;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// A registry with one store in memory.
pub(crate) fn memory() -> Registry {
    let registry = Registry::new();
    registry.install("main", Memory::new()).unwrap();
    registry
}

/// A page that looks often.
pub(crate) fn console(registry: &Registry) -> Console {
    Console::new(registry).every(Duration::from_millis(10))
}

pub(crate) async fn get(router: &Router, path: &str) -> Response {
    router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
}

pub(crate) async fn text(answer: Response) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

/// An open page.
pub(crate) struct Page {
    body: Body,
    unread: String,
    /// The last news of each part. A part that does not change is not told again.
    told: HashMap<String, Value>,
}

impl Page {
    /// Opens it on this store, with a query of further words.
    pub(crate) async fn open(router: &Router, query: &str) -> Self {
        let answer = get(router, &format!("/live?{query}")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        Self { body: answer.into_body(), unread: String::new(), told: HashMap::new() }
    }

    /// Reads until this is so of a part.
    pub(crate) async fn until(&mut self, part: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let reading = async {
            loop {
                if let Some(told) = self.told.get(part).filter(|told| is_so(told)) {
                    return told.clone();
                }
                let (name, told) = self.next().await.expect("the stream has ended");
                self.told.insert(name, told);
            }
        };
        let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
        read.unwrap_or_else(|_| panic!("no such news of {part}, the last is {:?}", self.told.get(part)))
    }

    /// The next news: its part, and what is told. `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.unread.split_once("\n\n") {
                let event = event.to_owned();
                self.unread = rest.to_owned();
                let field = |field: &str| event.lines().find_map(|line| line.strip_prefix(field));
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
                }
                continue;
            }
            let frame = self.body.frame().await?.unwrap();
            self.unread += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    }
}
