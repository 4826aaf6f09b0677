//! HTTP requests to the agent, each with a timeout, and the server's refusals as errors.

use std::error::Error as StdError;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use dlock_store::Clock;
use futures::future::join;
use http::header::HeaderValue;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::server::connector::Connector;
use crate::server::settings::Settings;

/// The timeout of a request. A blocking query has its waiting time in addition.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The most requests of each kind at a time: renewals, and all others. A slow agent makes requests wait for their turn, and
/// neither kind waits behind the other one. By default an agent accepts 200 connections from one address.
const AT_ONCE: u32 = 32;

/// The most idle connections that stay open.
const IDLE_LIMIT: usize = 8;

/// The longest answer that is read, in bytes. A longer one is an error.
const LONGEST_ANSWER: usize = 64 << 20;

/// The characters that have a meaning in a path or a query, and those that it must not contain.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'+')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'=')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b';');

/// Escapes a part of a path, or a value in a query. A slash stays as it is.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The HTTP client of one agent.
pub(crate) struct Http {
    settings: Settings,
    connector: Connector,
    clock: Clock,
    client: Mutex<Client<Connector, Full<Bytes>>>,
    renewals: Semaphore,
    others: Semaphore,
}

/// An answer of the agent: a success, "not found", or "conflict".
pub(crate) struct ApiAnswer {
    pub(crate) status: StatusCode,
    /// The index of the state that the answer shows. A blocking query waits for a later one.
    pub(crate) index: u64,
    pub(crate) body: Bytes,
    /// When the request left, after it had waited for its turn.
    pub(crate) sent: BootInstant,
}

/// One request to the API.
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query, escaped.
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// How long the server may wait before it answers a blocking query.
    pub(crate) max_wait: Duration,
    /// Whether a hold depends on it.
    pub(crate) renews: bool,
}

impl ApiRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new(), max_wait: Duration::ZERO, renews: false }
    }

    pub(crate) fn put(path: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::PUT, body: body.into(), ..Self::get(path) }
    }

    /// Makes this a part of a renewal.
    pub(crate) fn of_a_renewal(self) -> Self {
        Self { renews: true, ..self }
    }

    /// Makes this a blocking query: the server answers after a change since `index`, or after this time.
    pub(crate) fn until_changed(mut self, index: u64, time: Duration) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{separator}index={index}&wait={}ms", self.path, time.as_millis());
        // The server adds up to a sixteenth of the time.
        self.max_wait = time + time / 16;
        self
    }
}

impl Http {
    pub(crate) fn new(settings: Settings, clock: &Clock) -> Result<Self> {
        let connector = Connector::new(&settings)?;
        let client = Mutex::new(client(&connector));
        let slots = || Semaphore::new(usize::try_from(AT_ONCE).unwrap_or(usize::MAX));
        Ok(Self { settings, connector, clock: clock.clone(), client, renewals: slots(), others: slots() })
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sends a request. `Ok`: the server has answered with a success, "not found", or "conflict".
    ///
    /// Runs only on our thread, where the connections are.
    pub(crate) async fn send(&self, request: ApiRequest) -> Result<ApiAnswer> {
        let end = self.clock.now().after(request.max_wait + REQUEST_TIMEOUT);
        let slots = if request.renews { &self.renewals } else { &self.others };
        let _slot = if request.max_wait.is_zero() { Some(self.slot(slots, end).await?) } else { None };
        let token = self.settings.token.header();
        let refused = match self.ask(self.to_http(&request, token.clone())?, end).await {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => error,
            answer => return answer,
        };
        // A refused request has changed nothing, so it may be sent again with the new token.
        match self.clock.timeout_at(end, self.settings.token.replaced(token.as_ref())).await.flatten() {
            Some(token) => self.ask(self.to_http(&request, Some(token))?, end).await,
            None => Err(refused),
        }
    }

    async fn ask(&self, request: Request<Full<Bytes>>, end: BootInstant) -> Result<ApiAnswer> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent = self.clock.now();
        let Some(answer) = self.clock.timeout_at(end, ask(&client, request, sent)).await else {
            // The idle connections may lead to the same silent agent.
            self.drop_connections();
            return Err(Error::outage(format!("Consul did not answer within {REQUEST_TIMEOUT:?}")));
        };
        answer
    }

    /// Waits until no request is under way, for at most the timeout of a request. Then closes the connections, and takes no request
    /// any more.
    pub(crate) async fn close(&self) {
        let end = self.clock.now().after(REQUEST_TIMEOUT);
        let all = join(self.renewals.acquire_many(AT_ONCE), self.others.acquire_many(AT_ONCE));
        let _all = self.clock.timeout_at(end, all).await;
        [&self.renewals, &self.others].into_iter().for_each(Semaphore::close);
        self.drop_connections();
    }

    fn drop_connections(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client(&self.connector);
    }

    /// Waits until fewer than the most requests are under way. This is bounded too: if the agent is silent, requests would
    /// otherwise pile up without end.
    async fn slot<'a>(&self, slots: &'a Semaphore, end: BootInstant) -> Result<SemaphorePermit<'a>> {
        let Some(slot) = self.clock.timeout_at(end, slots.acquire()).await else {
            let text = format!(
                "{AT_ONCE} requests to Consul are under way, and none of them ended within {REQUEST_TIMEOUT:?}"
            );
            return Err(Error::outage(text).never_sent());
        };
        slot.map_err(|_| Error::closed())
    }

    fn to_http(&self, request: &ApiRequest, token: Option<HeaderValue>) -> Result<Request<Full<Bytes>>> {
        let Settings { host, port, scope, tls, .. } = &self.settings;
        let (scheme, host) = (if tls.is_some() { "https" } else { "http" }, bracketed(host));
        let mut uri = format!("{scheme}://{host}:{port}/v1/{}", request.path);
        for (name, value) in scope {
            uri.push(if uri.contains('?') { '&' } else { '?' });
            uri.push_str(&format!("{name}={}", escaped(value)));
        }
        let mut builder = Request::builder().method(&request.method).uri(uri);
        if let Some(token) = token {
            builder = builder.header("X-Consul-Token", token);
        }
        builder
            .body(Full::new(request.body.clone()))
            .map_err(|_| Error::config("url", "the host of the Consul URL is not valid in an HTTP address"))
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn client(connector: &Connector) -> Client<Connector, Full<Bytes>> {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(IDLE_LIMIT);
    builder.build(connector.clone())
}

async fn ask(
    client: &Client<Connector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
    sent: BootInstant,
) -> Result<ApiAnswer> {
    let answer = client.request(request).await.map_err(broken)?;
    let (head, body) = answer.into_parts();
    let index = head.headers.get("X-Consul-Index").and_then(|index| index.to_str().ok()?.parse().ok());
    let body = Limited::new(body, LONGEST_ANSWER).collect().await;
    let body = body
        .map_err(|error| Error::outage("the connection to Consul broke during the answer").because(error))?
        .to_bytes();
    match head.status {
        status if status.is_success() => {}
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => {}
        status => return Err(refusal(status, &body)),
    }
    Ok(ApiAnswer { status: head.status, index: index.unwrap_or(0), body, sent })
}

/// The error of a request without an answer.
fn broken(error: ClientError) -> Error {
    if !error.is_connect() {
        return Error::outage("the connection to Consul broke").because(error);
    }
    let mut source: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(cause) = source {
        if let Some(ours) = cause.downcast_ref::<Error>() {
            return ours.again().because(ours.source().map_or_else(String::new, ToString::to_string)).never_sent();
        }
        source = cause.source();
    }
    Error::outage("no connection to the Consul agent").because(error).never_sent()
}

/// The error of a request that the server refused.
fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let text: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect();
    match status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => denied(&text),
        // No leader, an unreachable server, or too many connections: a retry can help.
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Error::outage(format!("Consul answered {}: {text}", status.as_u16()))
        }
        status => Error::new(ErrorKind::Protocol, format!("Consul refused a request ({}): {text}", status.as_u16())),
    }
}

/// The error of a token without the needed rights.
pub(crate) fn denied(text: &str) -> Error {
    let needs = "a lock needs `node_prefix \"dlock-\"`, `session_prefix \"dlock-\"` (with `checks` the agent's node instead) \
         and `key_prefix \"dl1\"` (or the names of literal keys), all with policy write";
    Error::new(ErrorKind::PermissionDenied, format!("Consul refuses the token: {text}; {needs}"))
}
