//! Keys: reading one, reading all below a prefix, and waiting for a change.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_contract::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::server::http::{ApiAnswer, ApiRequest, Http, escaped};

/// An entry of the key-value store.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) flags: u64,
    /// In base64.
    value: Option<String>,
    /// The session that holds it.
    #[serde(default)]
    pub(crate) session: Option<String>,
    pub(crate) modify_index: u64,
}

impl Entry {
    /// The value as text. Bytes that are not UTF-8 become replacement characters.
    pub(crate) fn text(&self) -> String {
        let value = self.value.as_deref().unwrap_or_default();
        String::from_utf8_lossy(&STANDARD.decode(value).unwrap_or_default()).into_owned()
    }

    pub(crate) fn is_held_by(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session)
    }
}

/// The result of a read, and the index after which a query can wait for a change.
pub(crate) struct Indexed<T> {
    pub(crate) found: T,
    pub(crate) index: u64,
}

/// Makes a read wait for a change after this index, for at most this time.
pub(crate) type Since = Option<(u64, Duration)>;

/// Reads one key. The answer comes from the leader, which may have lost this role a moment ago.
pub(crate) async fn read(http: &Http, key: &str, since: Since) -> Result<Indexed<Option<Entry>>> {
    let Indexed { found, index } = ask(http, format!("kv/{}", escaped(key)), since).await?;
    Ok(Indexed { found: found.into_iter().next(), index })
}

/// Reads all keys with this prefix, in order.
pub(crate) async fn read_all(http: &Http, prefix: &str, since: Since) -> Result<Indexed<Vec<Entry>>> {
    ask(http, format!("kv/{}?recurse", escaped(prefix)), since).await
}

/// Reads the names of all keys with this prefix, in order.
pub(crate) async fn names(http: &Http, prefix: &str) -> Result<Vec<String>> {
    let answer = http.send(ApiRequest::get(format!("kv/{}?keys", escaped(prefix)))).await?;
    if answer.status.is_success() { read_json(&answer) } else { Ok(Vec::new()) }
}

async fn ask(http: &Http, path: String, since: Since) -> Result<Indexed<Vec<Entry>>> {
    let request = ApiRequest::get(path);
    let request = match since {
        // With index zero the query would not wait.
        Some((index, time)) => request.until_changed(index.max(1), time),
        None => request,
    };
    let answer = http.send(request).await?;
    let found = if answer.status.is_success() { read_json(&answer)? } else { Vec::new() };
    Ok(Indexed { found, index: answer.index })
}

/// The JSON of an answer.
pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(answer: &ApiAnswer) -> Result<T> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| Error::new(ErrorKind::Protocol, "Consul's answer is not the expected JSON").because(error))
}
