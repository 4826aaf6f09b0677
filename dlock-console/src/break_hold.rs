//! Breaks a hold: for an operator that the service knows, from an open page, by the hold's id, with a reason.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use dlock::{HoldId, Key, LockKey, LockState, Note};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::seen::SeenHolder;
use crate::shared::Shared;

/// Its value is the token that the open page has for its next request. A form or an image of another page cannot send it.
const TOKEN: &str = "x-dlock-token";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    store: String,
    /// The lock's full name.
    name: String,
    hold: String,
    why: String,
}

pub(crate) async fn break_hold(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let token = parts.headers.get(TOKEN).and_then(|token| token.to_str().ok());
    let Some(next) = token.and_then(|token| shared.pages.spend(token)) else {
        let why = "a break needs the token of an open page, and each token is good for one: load the page again";
        return refused(StatusCode::FORBIDDEN, why);
    };
    let mut answer = match ordered(&shared, &parts, body).await {
        Ok(answer) | Err(answer) => answer,
    };
    if let Ok(next) = HeaderValue::from_str(&next) {
        answer.headers_mut().insert(TOKEN, next);
    }
    answer
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

async fn ordered(shared: &Arc<Shared>, parts: &Parts, body: Body) -> Result<Response, Response> {
    let who = shared.who.as_ref().and_then(|who| who(parts));
    let who = who.ok_or_else(|| refused(StatusCode::FORBIDDEN, "the service does not know who you are"))?;
    let request = Request::from_parts(parts.clone(), body);
    let Json(order) = Json::<Order>::from_request(request, &()).await.map_err(IntoResponse::into_response)?;
    let bad = |why: &str| refused(StatusCode::BAD_REQUEST, why);
    let hold: HoldId = order.hold.parse().map_err(|error: dlock::Error| bad(&error.to_string()))?;
    if order.why.trim().is_empty() {
        return Err(bad("say why: the holder reads it in its error"));
    }
    // Some stores have locks under plain names, as foreign clients write them.
    let key = LockKey::from_stored(&order.name).map_or_else(|| Key::rendered(&order.name), |name| Key::from(&name));
    let lock = || {
        let lock = shared.registry.lock(key.clone());
        if order.store.is_empty() { lock } else { lock.backend(&order.store) }
    };
    let failed = |error: dlock::Error| refused(StatusCode::BAD_GATEWAY, &error.to_string());
    if lock().break_hold(hold).by(who).because(&order.why).await.map_err(failed)? {
        return Ok(Json(json!({ "broken": true })).into_response());
    }
    let present = lock().holders().await.map_err(failed)?;
    Ok((StatusCode::CONFLICT, Json(not_broken(&present))).into_response())
}

/// The id is an old one. It is said who holds the lock now.
fn not_broken(present: &LockState) -> Value {
    let holders: Vec<_> = present.holders.iter().map(SeenHolder::new).collect();
    let error = match present.note().map(Note::place) {
        Some(place) => format!("this hold has ended; the lock is now held by {place}"),
        None => "this hold has ended; nobody holds the lock now".to_owned(),
    };
    json!({ "broken": false, "error": error, "holders": holders })
}
