//! The page itself: it runs nothing but its own script, and loads nothing.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use tower::ServiceExt;

use crate::live::{console, get, memory, text};

#[tokio::test]
async fn only_the_script_of_the_page_runs_and_nothing_is_loaded() {
    let router = dlock_console::router(&memory());
    let answer = get(&router, "/").await;
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    for part in
        ["default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let page = text(answer).await;
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert_eq!((page.matches("<script").count(), page.matches("<style").count()), (1, 1));
    for word in [
        "http://",
        "https://",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        " onclick",
        " src=",
        " style=\"",
        "NONCE",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    let other = get(&router, "/").await;
    assert!(!other.headers()["content-security-policy"].to_str().unwrap().contains(&nonce));
}

#[tokio::test]
async fn a_service_mounts_it_below_a_path() {
    let app = Router::new().nest("/ops/locks", console(&memory()).router());
    assert_eq!(get(&app, "/ops/locks").await.status(), StatusCode::OK);
    let news = get(&app, "/ops/locks/live").await;
    assert_eq!(news.status(), StatusCode::OK);
    assert_eq!(news.headers()["x-accel-buffering"], "no", "a proxy must not keep the news back");
    assert_eq!(get(&app, "/ops/locks/nowhere").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn it_changes_nothing_unless_it_is_told_to() {
    let router = dlock_console::router(&memory());
    for (path, status) in [
        ("/break", StatusCode::NOT_FOUND),
        ("/", StatusCode::METHOD_NOT_ALLOWED),
        ("/live", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let post = Request::post(path).header("x-dlock-token", "0").body(Body::empty()).unwrap();
        assert_eq!(router.clone().oneshot(post).await.unwrap().status(), status, "{path}");
    }
}
