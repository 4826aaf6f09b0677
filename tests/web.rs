//! Handlers of web frameworks, with the lock's error as their answer.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use dlock::testing::TestKit;
use dlock::{Error, ErrorKind, LossCause, distributed_lock};
use tower::ServiceExt;

#[distributed_lock(key = "stock:<id>", wait = "none")]
async fn deduct(Path(id): Path<u64>) -> Result<String, Error> {
    Ok(format!("one of {id}"))
}

async fn ask() -> (StatusCode, Option<String>, String) {
    let app = axum::Router::new().route("/stock/{id}", axum::routing::post(deduct));
    let request = Request::post("/stock/7").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let status = response.status();
    let body = to_bytes(response.into_body(), 1000).await.unwrap();
    (status, retry, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn an_axum_handler_answers_with_retry_after() {
    let kit = TestKit::new();
    let _in = kit.enter();
    assert_eq!(ask().await, (StatusCode::OK, None, "one of 7".into()));

    kit.busy_for(Duration::from_millis(2500));
    let (status, retry, text) = ask().await;
    assert_eq!((status, retry.as_deref()), (StatusCode::LOCKED, Some("3")));
    assert!(!text.contains("stock") && !text.contains("memory"), "{text}");
    // A holder that renews: when its lease would end says nothing about when it will be done.
    kit.busy_for(Duration::from_secs(30));
    assert_eq!(ask().await.1.as_deref(), Some("5"));

    kit.busy_for(Duration::ZERO);
    kit.outage(true);
    let (status, retry, _) = ask().await;
    assert_eq!((status, retry.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
}

/// The code that `tonic` generates for a service.
#[tonic::async_trait]
trait Shop: Send + Sync + 'static {
    async fn deduct(&self, request: tonic::Request<u64>) -> Result<tonic::Response<u64>, tonic::Status>;
}

struct Branch {
    name: String,
}

#[tonic::async_trait]
impl Shop for Branch {
    #[distributed_lock(key = "stock:<self.name>", wait = "none")]
    async fn deduct(&self, request: tonic::Request<u64>) -> Result<tonic::Response<u64>, tonic::Status> {
        let id = request.into_inner();
        if id == 0 {
            return Err(tonic::Status::invalid_argument("no such thing"));
        }
        Ok(tonic::Response::new(id + 1))
    }
}

#[tokio::test]
async fn a_tonic_handler_answers_with_a_status() {
    let kit = TestKit::new();
    let _in = kit.enter();
    let shop = Branch { name: "east".into() };
    assert_eq!(shop.deduct(tonic::Request::new(6)).await.unwrap().into_inner(), 7);
    assert_eq!(shop.deduct(tonic::Request::new(0)).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    kit.busy_for(Duration::from_secs(1));
    let status = shop.deduct(tonic::Request::new(6)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(std::error::Error::source(&status).unwrap().to_string().contains("busy"));
}

/// The client gets no word of the error, so the log has it, once.
#[test]
fn an_internal_error_is_logged_once_at_its_conversion_and_a_busy_lock_is_not() {
    use axum::response::IntoResponse;

    let log = dlock_testkit::Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        // Other lines tell of a loss. But no other line tells of a hold that was used wrongly.
        let [lost, misused] = [LossCause::Deadline, LossCause::LeftBody].map(ErrorKind::Lost);
        let of_the_store = [ErrorKind::Outage, ErrorKind::PermissionDenied, lost];
        for kind in [ErrorKind::KeyConflict, misused, ErrorKind::Busy].into_iter().chain(of_the_store.clone()) {
            let _ = Error::new(kind, "the words of axum").with_key("stock:<7>").into_response();
        }
        // Of one kind there is one line in a second.
        for kind in
            [ErrorKind::CorruptState, ErrorKind::FenceRegression, ErrorKind::Busy].into_iter().chain(of_the_store)
        {
            let _ = tonic::Status::from(Error::new(kind, "the words of tonic").with_key("stock:<7>"));
        }
    });
    let text = log.text();
    assert!(text.lines().count() == 4 && text.matches("stock:<7>").count() == 4, "{text}");
    assert!(["axum", "tonic"].iter().all(|of| text.matches(&format!("the words of {of}")).count() == 2), "{text}");
}

/// A client may ask for it hundreds of times a second.
#[test]
fn many_internal_errors_of_one_kind_are_one_line_a_second() {
    use axum::response::IntoResponse;

    let log = dlock_testkit::Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(move || writer.clone()).finish();
    let began = std::time::Instant::now();
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..300 {
            let _ = Error::new(ErrorKind::SchemaMismatch, "the words of axum").into_response();
        }
    });
    let seconds = began.elapsed().as_secs();
    let text = log.text();
    let of =
        |level: &str| text.lines().filter(|line| line.contains(level) && line.contains("the words of axum")).count();
    assert!((1..=1 + seconds).contains(&(of(" ERROR ") as u64)), "{seconds} s: {text}");
    assert_eq!(of(" ERROR ") + of(" DEBUG "), 300);
}
