//! Transactions: several operations on keys, all or none, in one entry of Consul's log.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_contract::{Error, ErrorKind, Result};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::api::kv::{Entry, read_json};
use crate::server::http::{ApiRequest, Http, denied};

/// The most operations of one transaction.
pub(crate) const MAX_OPS: usize = 64;

/// One operation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Op<'a> {
    verb: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

impl<'a> Op<'a> {
    fn new(verb: &'static str, key: &'a str) -> Self {
        Self { verb, key, value: None, flags: None, index: None, session: None }
    }

    /// Lets a session hold the key. Fails if another session holds it.
    pub(crate) fn lock(key: &'a str, session: &'a str, flags: u64, value: &str) -> Self {
        let value = Some(STANDARD.encode(value));
        Self { session: Some(session), flags: Some(flags), value, ..Self::new("lock", key) }
    }

    /// Frees a key of this session. The key stays.
    pub(crate) fn unlock(key: &'a str, session: &'a str, flags: u64) -> Self {
        Self { session: Some(session), flags: Some(flags), ..Self::new("unlock", key) }
    }

    /// Fails unless this session holds the key.
    pub(crate) fn held(key: &'a str, session: &'a str) -> Self {
        Self { session: Some(session), ..Self::new("check-session", key) }
    }

    /// Fails unless the key was last changed at this index. Zero means that the key must not exist.
    pub(crate) fn unchanged(key: &'a str, index: u64) -> Self {
        if index == 0 {
            return Self::new("check-not-exists", key);
        }
        Self { index: Some(index), ..Self::new("check-index", key) }
    }

    pub(crate) fn set(key: &'a str, value: &[u8]) -> Self {
        Self { value: Some(STANDARD.encode(value)), ..Self::new("set", key) }
    }

    pub(crate) fn delete(key: &'a str) -> Self {
        Self::new("delete", key)
    }

    /// Deletes the key. Fails unless it was last changed at this index.
    pub(crate) fn delete_unchanged(key: &'a str, index: u64) -> Self {
        Self { index: Some(index), ..Self::new("delete-cas", key) }
    }

    /// Writes the key. Fails unless it was last changed at this index. Zero means that the key must not exist.
    pub(crate) fn write_unchanged(key: &'a str, index: u64, flags: u64, value: &str) -> Self {
        let value = Some(STANDARD.encode(value));
        Self { index: Some(index), flags: Some(flags), value, ..Self::new("cas", key) }
    }
}

/// The answer to a transaction.
#[derive(Debug)]
pub(crate) enum TxnOutcome {
    /// Everything was done. Has the entries after the operations, in order. Some operations return no entry.
    Done(Vec<Entry>),
    /// The transaction was refused, and nothing has changed. Lists the operations that failed, with their errors.
    Refused(Vec<OpFailure>),
}

/// An operation that failed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct OpFailure {
    pub(crate) op_index: usize,
    what: String,
}

impl OpFailure {
    /// Nobody holds the key, but Consul's lock-delay still runs: the session of its last holder was invalidated.
    pub(crate) fn is_lock_delay(&self) -> bool {
        self.what.contains("lock delay")
    }

    /// The session has ended.
    pub(crate) fn is_dead_session(&self) -> bool {
        self.what.contains("invalid session")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TxnReply {
    results: Option<Vec<OpResult>>,
    errors: Option<Vec<OpFailure>>,
}

#[derive(Deserialize)]
struct OpResult {
    #[serde(rename = "KV")]
    kv: Option<Entry>,
}

/// Runs a transaction. If it only reads, the leader answers after it has confirmed its role with a majority.
pub(crate) async fn run(http: &Http, ops: &[Op<'_>]) -> Result<TxnOutcome> {
    send(http, request(ops)?).await
}

/// Runs a transaction that checks holds for their renewal.
pub(crate) async fn check_holds(http: &Http, ops: &[Op<'_>]) -> Result<TxnOutcome> {
    send(http, request(ops)?.of_a_renewal()).await
}

fn request(ops: &[Op<'_>]) -> Result<ApiRequest> {
    let body = serde_json::to_vec(&ops.iter().map(|kv| Kv { kv }).collect::<Vec<_>>()).map_err(unwritable)?;
    Ok(ApiRequest::put("txn?consistent", body))
}

async fn send(http: &Http, request: ApiRequest) -> Result<TxnOutcome> {
    let answer = http.send(request).await?;
    let reply: TxnReply = read_json(&answer)?;
    if answer.status == StatusCode::CONFLICT {
        let failures = reply.errors.unwrap_or_default();
        return match failures.iter().any(|failure| failure.what.contains("Permission denied")) {
            true => Err(denied("Permission denied")),
            false => Ok(TxnOutcome::Refused(failures)),
        };
    }
    Ok(TxnOutcome::Done(reply.results.unwrap_or_default().into_iter().filter_map(|result| result.kv).collect()))
}

#[derive(Serialize)]
#[serde(rename_all = "UPPERCASE")]
struct Kv<'a> {
    kv: &'a Op<'a>,
}

/// One operation as JSON, as a transaction has it.
pub(crate) fn operation(kv: &Op<'_>) -> Result<String> {
    serde_json::to_string(&Kv { kv }).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, "a transaction cannot be written as JSON").because(error)
}
