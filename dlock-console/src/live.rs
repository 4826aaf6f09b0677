//! The news of an open page, as server-sent events. It is a stream without a task: it ends when its connection does.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{BoxStream, Stream, StreamExt, select_all, unfold};
use serde_json::Value;

use crate::locks::{View, look};
use crate::pages::OpenPage;
use crate::sections;
use crate::shared::Shared;

/// A stream without news shows by this that it lives, and learns that its reader is gone. The page takes a connection for dead that
/// has been silent for three times as long (`SILENCE` in `page.js`).
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

pub(crate) async fn live(State(shared): State<Arc<Shared>>, Query(view): Query<View>) -> Response {
    let Some(page) = OpenPage::open(&shared.pages) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages of the console are open").into_response();
    };
    let news = news(shared, view, page);
    // An event, because a script does not see comments.
    let sign = KeepAlive::new().interval(SIGN_OF_LIFE).event(Event::default().event("alive").data("0"));
    let events = Sse::new(news).keep_alive(sign);
    // A proxy such as nginx would keep the news until it has a whole buffer of them.
    ([(CACHE_CONTROL, "no-store"), (HeaderName::from_static("x-accel-buffering"), "no")], events).into_response()
}

fn news(shared: Arc<Shared>, view: View, page: OpenPage) -> impl Stream<Item = Result<Event, Infallible>> {
    let often = shared.every;
    let seldom = often.saturating_mul(5);
    let view = Arc::new(view);
    let about = {
        let shared = shared.clone();
        // The page is open as long as this stream lives.
        move || ready(Some(sections::about(&shared, &page)))
    };
    let with = |section: fn(Arc<Shared>) -> BoxedLook| {
        let shared = shared.clone();
        move || section(shared.clone())
    };
    let locks = {
        let shared = shared.clone();
        move || look(shared.clone(), view.clone())
    };
    select_all([
        section("about", often, about),
        section("locks", often, locks),
        section("here", often, with(|shared| Box::pin(ready(Some(sections::here(&shared)))))),
        section("activity", often, with(|shared| Box::pin(ready(Some(shared.activity.tell()))))),
        section("leaders", often, with(|shared| Box::pin(sections::leaders(shared)))),
        section("stores", seldom, with(|shared| Box::pin(sections::stores(shared)))),
        section("tasks", seldom, with(|shared| Box::pin(sections::tasks(shared)))),
        section("sites", seldom, with(|shared| Box::pin(ready(Some(sections::sites(&shared)))))),
    ])
    .take_while(|event| ready(event.is_some()))
    .filter_map(|event| ready(event.map(Ok)))
}

type BoxedLook = std::pin::Pin<Box<dyn Future<Output = Option<Value>> + Send>>;

/// One part of the page. It is sent when it has changed. `None` ends the stream: the registry is shut down.
fn section<F, L>(name: &'static str, pause: Duration, look: F) -> BoxStream<'static, Option<Event>>
where
    F: Fn() -> L + Send + 'static,
    L: Future<Output = Option<Value>> + Send,
{
    let sections = unfold((look, None), move |(look, told)| async move {
        loop {
            if told.is_some() {
                tokio::time::sleep(pause).await;
            }
            let Some(seen) = look().await else { return Some((None, (look, told))) };
            let text = seen.to_string();
            if told.as_ref() != Some(&text) {
                let event = Event::default().event(name).data(&text);
                return Some((Some(event), (look, Some(text))));
            }
        }
    });
    sections.boxed()
}
