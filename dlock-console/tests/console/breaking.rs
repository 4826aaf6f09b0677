//! Breaking a hold: who may, by which id, and what the holder hears.

use std::cell::RefCell;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use dlock::backends::memory::Memory;
use dlock::{Key, Registry};
use dlock_testkit::{Log, wait_until};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::live::{Page, console, memory, text};

struct Opened {
    router: Router,
    page: Page,
    /// For the next request.
    token: RefCell<String>,
}

impl Opened {
    /// As the page does it: with its token, which the answer replaces.
    async fn post(&self, user: Option<&str>, order: &Value) -> (StatusCode, Value) {
        let token = self.token.borrow().clone();
        let (status, next, said) = post(&self.router, &token, user, order).await;
        self.token.replace(next.expect("a token for the next request"));
        (status, said)
    }
}

/// A page on which operators may break; a header names the operator.
async fn opened(registry: &Registry) -> Opened {
    let who = |parts: &axum::http::request::Parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned());
    let router = console(registry).breaking(who).router();
    let mut page = Page::open(&router, "").await;
    let about = page.until("about", |_| true).await;
    let token = RefCell::new(about["token"].as_str().unwrap().to_owned());
    Opened { router, page, token }
}

fn order(hold: &str) -> Value {
    json!({ "store": "main", "name": "dl1:default:job", "hold": hold, "why": "web-3 hangs" })
}

async fn post(router: &Router, token: &str, user: Option<&str>, order: &Value) -> (StatusCode, Option<String>, Value) {
    let mut request = Request::post("/break").header("content-type", "application/json").header("x-dlock-token", token);
    if let Some(user) = user {
        request = request.header("x-user", user);
    }
    let request = request.body(Body::from(order.to_string())).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let (status, next) = (answer.status(), answer.headers().get("x-dlock-token").cloned());
    let text = text(answer).await;
    let next = next.map(|next| next.to_str().unwrap().to_owned());
    (status, next, serde_json::from_str(&text).unwrap_or(Value::Null))
}

#[tokio::test]
async fn a_hold_is_broken_by_an_operator_with_a_reason() {
    let registry = memory();
    let opened = opened(&registry).await;
    let guard = registry.lock("job").acquire().await.unwrap();
    let id = registry.held()[0].id.to_string();
    let (status, said) = opened.post(Some("alice"), &order(&id)).await;
    assert_eq!((status, &said["broken"]), (StatusCode::OK, &json!(true)));
    let lost = guard.release().await.unwrap_err().to_string();
    assert!(lost.contains("alice@") && lost.contains("web-3 hangs"), "{lost}");
}

/// A service says at its own lock that the key is sensitive. The page knows nothing of it.
#[tokio::test]
async fn the_log_of_a_break_names_the_lock_and_hides_a_sensitive_key() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let store = Memory::new();
    let [service, registry] = [Registry::new(), Registry::new()];
    service.install("main", store.clone()).unwrap();
    registry.install("main", store).unwrap();
    let opened = opened(&registry).await;
    let guards = [
        service.lock(Key::text("patient:").value("Ann Lee")).name("ward").sensitive().acquire().await.unwrap(),
        service.lock(Key::text("room:").value(&17)).name("ward").acquire().await.unwrap(),
    ];
    for held in service.held() {
        let (name, id) = (held.key.as_str(), held.id.to_string());
        let order = json!({ "store": "main", "name": name, "hold": id, "why": "web-3 hangs" });
        assert_eq!(opened.post(Some("alice"), &order).await.0, StatusCode::OK);
        let line = || {
            log.text().lines().find(|line| line.contains("has broken a hold") && line.contains(&id)).map(String::from)
        };
        wait_until("the line about the break", async || line().is_some()).await.unwrap();
        // printf %s 'patient:<Ann%20Lee>' | sha256sum | cut -c1-16
        let key = if name.contains("patient") { "key=sha256:3bb76becbc2ab99e" } else { "key=dl1:default:room:<17>" };
        assert!(
            line().is_some_and(|line| line.contains(key) && line.contains("name=\"ward\"")),
            "{line:?}",
            line = line()
        );
    }
    assert!(!log.text().contains("patient"), "{}", log.text());
    drop(guards);
}

#[tokio::test]
async fn an_old_id_breaks_nothing_and_the_present_holder_is_told() {
    let registry = memory();
    let opened = opened(&registry).await;
    let old = registry.lock("job").acquire().await.unwrap();
    let id = registry.held()[0].id.to_string();
    old.release().await.unwrap();
    let (status, said) = opened.post(Some("alice"), &order(&id)).await;
    assert_eq!((status, &said["broken"]), (StatusCode::CONFLICT, &json!(false)));
    assert!(said["error"].as_str().unwrap().contains("nobody"), "{said}");
    let present = registry.lock("job").name("present").acquire().await.unwrap();
    let (status, said) = opened.post(Some("alice"), &order(&id)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(said["holders"][0]["function"], "present", "{said}");
    present.release().await.unwrap();
}

#[tokio::test]
async fn without_a_token_of_an_open_page_nothing_is_broken() {
    let registry = memory();
    let opened = opened(&registry).await;
    let guard = registry.lock("job").acquire().await.unwrap();
    let order = order(&registry.held()[0].id.to_string());
    for forged in ["", "0", "00000000000000000000000000000000"] {
        assert_eq!(post(&opened.router, forged, Some("alice"), &order).await.0, StatusCode::FORBIDDEN);
    }
    // A token is good for one request, also if that was refused.
    let spent = opened.token.borrow().clone();
    assert_eq!(opened.post(None, &order).await.0, StatusCode::FORBIDDEN);
    assert_ne!(*opened.token.borrow(), spent);
    let (status, next, said) = post(&opened.router, &spent, Some("alice"), &order).await;
    assert!(status == StatusCode::FORBIDDEN && next.is_none(), "{said}");
    guard.check().unwrap();
    // It ends with its page.
    let Opened { router, page, token } = opened;
    drop(page);
    assert_eq!(post(&router, &token.into_inner(), Some("alice"), &order).await.0, StatusCode::FORBIDDEN);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_order_needs_an_operator_an_id_and_a_reason() {
    let registry = memory();
    let opened = opened(&registry).await;
    let guard = registry.lock("job").acquire().await.unwrap();
    let good = order(&registry.held()[0].id.to_string());
    let with = |field: &str, value: Value| {
        let mut order = good.clone();
        order[field] = value;
        order
    };
    let (status, said) = opened.post(None, &good).await;
    assert!(status == StatusCode::FORBIDDEN && said["error"].as_str().unwrap().contains("who you are"), "{said}");
    for (bad, status) in [
        (with("hold", json!("all")), StatusCode::BAD_REQUEST),
        (with("why", json!("  ")), StatusCode::BAD_REQUEST),
        (with("force", json!(true)), StatusCode::UNPROCESSABLE_ENTITY),
        (with("store", json!("nowhere")), StatusCode::BAD_GATEWAY),
        (with("why", json!("x".repeat(20_000))), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(opened.post(Some("alice"), &bad).await.0, status, "{bad:.100}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_page_that_may_not_break_has_no_token() {
    let mut page = Page::open(&console(&memory()).router(), "").await;
    assert!(page.until("about", |_| true).await["token"].is_null());
}
