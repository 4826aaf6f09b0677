//! The page itself: one file, with its script and its style inside.

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::{Html, IntoResponse, Response};

use crate::pages::random;

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let page = include_str!("page/page.html");
    page.replace("/* style */", include_str!("page/page.css")).replace("/* script */", include_str!("page/page.js"))
});

/// The script and the style of the page run by a number that only this answer has. Nothing else runs, and nothing is loaded.
pub(crate) async fn page() -> Response {
    let Some(nonce) = random() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, Html(PAGE.replace("NONCE", &nonce))).into_response()
}
