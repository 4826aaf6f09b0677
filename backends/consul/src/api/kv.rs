//! Keys: reading one, reading all below a prefix, and waiting for a change.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dlock_contract::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::server::http::{Answer, Call, Http, escaped};

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
    /// The value as text. What is no text becomes marks.
    pub(crate) fn text(&self) -> String {
        let value = self.value.as_deref().unwrap_or_default();
        String::from_utf8_lossy(&STANDARD.decode(value).unwrap_or_default()).into_owned()
    }

    pub(crate) fn is_held_by(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session)
    }
}

/// The result of a read, and the index from which to wait for a change.
pub(crate) struct Seen<T> {
    pub(crate) found: T,
    pub(crate) index: u64,
}

/// Waits for a change since this index, or for this time.
pub(crate) type Since = Option<(u64, Duration)>;

/// One key. The server that answers was the leader a moment ago.
pub(crate) async fn read(http: &Http, key: &str, since: Since) -> Result<Seen<Option<Entry>>> {
    let Seen { found, index } = ask(http, format!("kv/{}", escaped(key)), since).await?;
    Ok(Seen { found: found.into_iter().next(), index })
}

/// Every key that begins with the prefix, in their order.
pub(crate) async fn read_all(http: &Http, prefix: &str, since: Since) -> Result<Seen<Vec<Entry>>> {
    ask(http, format!("kv/{}?recurse", escaped(prefix)), since).await
}

/// The names of all keys that begin with the prefix, in their order.
pub(crate) async fn names(http: &Http, prefix: &str) -> Result<Vec<String>> {
    let answer = http.call(Call::get(format!("kv/{}?keys", escaped(prefix)))).await?;
    if answer.status.is_success() { read_json(&answer) } else { Ok(Vec::new()) }
}

async fn ask(http: &Http, path: String, since: Since) -> Result<Seen<Vec<Entry>>> {
    let call = Call::get(path);
    let call = match since {
        // Zero would not wait at all.
        Some((index, time)) => call.until_changed(index.max(1), time),
        None => call,
    };
    let answer = http.call(call).await?;
    let found = if answer.status.is_success() { read_json(&answer)? } else { Vec::new() };
    Ok(Seen { found, index: answer.index })
}

/// The JSON of an answer.
pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(answer: &Answer) -> Result<T> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        Error::new(ErrorKind::Protocol, "Consul answered with something that is not the expected JSON").because(error)
    })
}
