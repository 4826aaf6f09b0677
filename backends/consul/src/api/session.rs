//! Requests about sessions: create, renew, read, destroy, list.

use std::collections::HashSet;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::api::kv::{Indexed, Since, read_json};
use crate::server::http::{ApiRequest, Http, escaped};
use crate::server::settings::Settings;

/// The request to create a session.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewSession<'a> {
    pub(crate) name: &'a str,
    #[serde(rename = "TTL", serialize_with = "duration")]
    pub(crate) ttl: Duration,
    #[serde(serialize_with = "duration")]
    pub(crate) lock_delay: Duration,
    pub(crate) behavior: Behavior,
}

/// The server's treatment of a session's keys when the session ends.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Behavior {
    /// The keys stay, and no session holds them.
    Release,
    Delete,
}

/// A session, as the server describes it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SessionInfo {
    #[serde(rename = "ID")]
    id: String,
    #[serde(default, rename = "TTL")]
    ttl: String,
}

impl SessionInfo {
    pub(crate) fn ttl(&self) -> Option<Duration> {
        go_duration(&self.ttl)
    }
}

/// Creates a session and returns its id. Registers its node, if the catalog does not have it.
pub(crate) async fn create(http: &Http, new_session: &NewSession<'_>) -> Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Body<'a> {
        #[serde(flatten)]
        new_session: &'a NewSession<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<&'a str>,
        /// Without this field the session would end with the gossip health of its node.
        checks: &'a [String],
    }
    #[derive(Deserialize)]
    struct Created {
        #[serde(rename = "ID")]
        id: String,
    }
    let Settings { node, checks, .. } = http.settings();
    let body = as_json(&Body { new_session, node: node.as_deref(), checks })?;
    let request = || ApiRequest::put("session/create", body.clone());
    let answer = match (http.send(request()).await, node) {
        (Err(error), Some(node)) if error.message().contains("Missing node") => {
            register(http, node).await?;
            http.send(request()).await?
        }
        (answer, _) => answer?,
    };
    let Created { id } = read_json(&answer)?;
    Ok(id)
}

/// Registers a node that no agent has. Only an operator takes it out of the catalog.
async fn register(http: &Http, node: &str) -> Result<()> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Node<'a> {
        node: &'a str,
        /// An address for documents, which leads nowhere.
        address: &'static str,
        /// This request does not read it from its query.
        #[serde(skip_serializing_if = "Option::is_none")]
        datacenter: Option<&'a str>,
    }
    let datacenter = http.settings().scope.iter().find(|(name, _)| *name == "dc").map(|(_, name)| name.as_str());
    let body = as_json(&Node { node, address: "192.0.2.1", datacenter })?;
    http.send(ApiRequest::put("catalog/register", body)).await.map(drop)
}

fn as_json(body: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(body)
        .map_err(|error| Error::new(ErrorKind::Internal, "a request cannot be written as JSON").because(error))
}

/// Renews a session, and gives the time from which it lives on. `None`: it has ended.
///
/// Many renewals wait for their turn on a slow agent. If they counted from before that, their holds would be renewed again at
/// once, and the queue would never get shorter.
pub(crate) async fn renew(http: &Http, id: &str) -> Result<Option<BootInstant>> {
    let request = ApiRequest::put(format!("session/renew/{}", escaped(id)), Vec::new());
    let answer = http.send(request.of_a_renewal()).await?;
    Ok((answer.status != StatusCode::NOT_FOUND).then_some(answer.sent))
}

/// Destroys a session. Succeeds too if the session has ended.
pub(crate) async fn destroy(http: &Http, id: &str) -> Result<()> {
    http.send(ApiRequest::put(format!("session/destroy/{}", escaped(id)), Vec::new())).await.map(drop)
}

/// Reads a session. `None`: it has ended.
pub(crate) async fn info(http: &Http, id: &str) -> Result<Option<SessionInfo>> {
    let answer = http.send(ApiRequest::get(format!("session/info/{}", escaped(id)))).await?;
    if !answer.status.is_success() {
        return Ok(None);
    }
    let found: Option<Vec<SessionInfo>> = read_json(&answer)?;
    Ok(found.into_iter().flatten().next())
}

/// The ids of all sessions of the store's node. An agent may come back under another name, so without a node of dlock's own
/// these are all sessions of the datacenter.
pub(crate) async fn list(http: &Http, since: Since) -> Result<Indexed<HashSet<String>>> {
    let request = ApiRequest::get(match &http.settings().node {
        Some(node) => format!("session/node/{node}"),
        None => "session/list".to_owned(),
    });
    let request = match since {
        Some((index, time)) => request.until_changed(index.max(1), time),
        None => request,
    };
    let answer = http.send(request).await?;
    let found: Option<Vec<SessionInfo>> = read_json(&answer)?;
    Ok(Indexed { found: found.into_iter().flatten().map(|session| session.id).collect(), index: answer.index })
}

/// Writes a duration as Go reads it. The engine has checked that a ttl is in whole milliseconds.
fn duration<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}ms", time.as_millis()))
}

/// A duration as Go writes it: `10s`, `24h0m0s`, `1.5s`.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (0.0, text);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(digits);
        let unit_ends = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_ends);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = behind;
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_read() {
        let ms = |text| go_duration(text).map(|time| time.as_millis());
        assert_eq!(ms("10s"), Some(10_000));
        assert_eq!(ms("24h0m0s"), Some(86_400_000));
        assert_eq!(ms("1m30.5s"), Some(90_500));
        assert_eq!(ms("500ms"), Some(500));
        for wrong in ["", "10", "s", "1x", "-1s"] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
    }
}
