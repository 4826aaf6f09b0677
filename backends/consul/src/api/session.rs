//! Requests about sessions: create, renew, read, destroy, list.

use std::collections::HashSet;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::api::kv::{Indexed, Since, read_json};
use crate::server::http::{ApiRequest, Http, escaped};

/// The request to create a session.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewSession<'a> {
    pub(crate) name: &'a str,
    /// The node of the session. `None`: the agent's own node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<&'a str>,
    #[serde(rename = "TTL", serialize_with = "duration")]
    pub(crate) ttl: Duration,
    #[serde(serialize_with = "duration")]
    pub(crate) lock_delay: Duration,
    pub(crate) behavior: Behavior,
    /// Without this field the session would end with the gossip health of its node.
    pub(crate) checks: &'a [String],
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
    #[serde(default)]
    pub(crate) node: String,
    #[serde(default, rename = "TTL")]
    ttl: String,
}

impl SessionInfo {
    pub(crate) fn ttl(&self) -> Option<Duration> {
        go_duration(&self.ttl)
    }
}

/// Creates a session and returns its id.
pub(crate) async fn create(http: &Http, new_session: &NewSession<'_>) -> Result<String> {
    #[derive(Deserialize)]
    struct Created {
        #[serde(rename = "ID")]
        id: String,
    }
    let body = serde_json::to_vec(new_session)
        .map_err(|error| Error::new(ErrorKind::Internal, "a session cannot be written as JSON").because(error))?;
    let answer = http.send(ApiRequest::put("session/create", body)).await?;
    let Created { id } = read_json(&answer)?;
    Ok(id)
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

/// The ids of all sessions of a node.
pub(crate) async fn of_node(http: &Http, node: &str, since: Since) -> Result<Indexed<HashSet<String>>> {
    let request = ApiRequest::get(format!("session/node/{}", escaped(node)));
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
