//! Renewing any number of holds in one statement for each kind.

use std::fmt::Write;

use super::asked::nanos;
use super::line::Turn;
use super::time::Time;
use super::{exclusive, shares};
use crate::backend::{Hold, Standing, Validity};
use crate::error::{Error, Result};
use crate::options::Kind;

pub(super) async fn renew(turn: &mut Turn<'_>, time: &Time, holds: &[&Hold]) -> Result<Vec<Standing>> {
    let now = time.now()?;
    let mut renewed: Vec<(Vec<u8>,)> = Vec::new();
    for (renew, shared) in [(exclusive::RENEW, false), (shares::RENEW, true)] {
        let holds = holds.iter().filter(|hold| (hold.claim.kind != Kind::Exclusive) == shared);
        let Some(list) = list(holds) else { continue };
        let rows = sqlx::query_as(renew).bind(list).bind(now.stored).bind(time.boot()).fetch_all(turn.conn()).await;
        renewed.append(&mut rows.map_err(|error| turn.fault(error))?);
    }
    let standing = |hold: &&Hold| {
        let ours = renewed.iter().any(|(owner,)| owner == hold.claim.owner.as_bytes());
        let validity = Validity { from: now.at, granted: hold.claim.ttl };
        if ours { Standing::Renewed(validity) } else { Standing::Lost }
    };
    Ok(holds.iter().map(standing).collect())
}

/// One failed request is the same news for every hold in it.
pub(super) fn unknown(error: &Error) -> Error {
    Error::new(error.kind().clone(), "the request that would have renewed this lock failed")
        .with_retryable(error.is_retryable())
        .because(error.to_string())
}

/// `[[key, owner in hex, ttl in nanoseconds], …]`; `None` for none. Keys are printable ASCII: two characters need an
/// escape.
fn list<'a>(holds: impl Iterator<Item = &'a &'a Hold>) -> Option<String> {
    let mut list = String::new();
    for hold in holds {
        let separator = if list.is_empty() { '[' } else { ',' };
        let key = hold.claim.key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
        let (owner, ttl) = (hold.claim.owner.to_hex(), nanos(hold.claim.ttl));
        // Writing into a string cannot fail.
        let _ = write!(list, "{separator}[\"{key}\",\"{owner}\",{ttl}]");
    }
    (!list.is_empty()).then(|| list + "]")
}
