//! Renews any number of holds in one statement for each mode.

use std::fmt::Write;
use std::sync::Arc;

use dlock_contract::{Claim, Error, Mode, Result, Standing, Validity};

use super::connection::FileConnection;
use super::request::nanos;
use super::time::Time;
use super::{exclusive, shares};

pub(super) async fn renew(
    connection: &mut FileConnection,
    time: &Time,
    claims: &[Arc<Claim>],
) -> Result<Vec<Standing>> {
    let now = time.now()?;
    let mut renewed: Vec<(Vec<u8>,)> = Vec::new();
    for (renew, shared) in [(exclusive::RENEW, false), (shares::RENEW, true)] {
        let claims = claims.iter().filter(|claim| (claim.mode != Mode::Exclusive) == shared);
        let Some(list) = list(claims) else { continue };
        let rows =
            sqlx::query_as(renew).bind(list).bind(now.stored).bind(time.boot()).fetch_all(connection.conn()).await;
        renewed.append(&mut rows.map_err(|error| connection.fault(error))?);
    }
    let standing = |claim: &Arc<Claim>| {
        let is_held = renewed.iter().any(|(owner,)| owner == claim.owner.as_bytes());
        let validity = Validity::new(now.at, claim.ttl);
        if is_held { Standing::Renewed(validity) } else { Standing::Lost }
    };
    Ok(claims.iter().map(standing).collect())
}

/// The error of a failed request, for each hold in it.
pub(super) fn unknown(error: &Error) -> Error {
    Error::new(error.kind().clone(), "the request that would have renewed this lock failed")
        .with_retryable(error.is_retryable())
        .because(error.to_string())
}

/// `[[key, owner in hex, ttl in nanoseconds], …]`; `None` for none. Keys are printable ASCII: two characters need an
/// escape.
fn list<'a>(claims: impl Iterator<Item = &'a Arc<Claim>>) -> Option<String> {
    let mut list = String::new();
    for claim in claims {
        let separator = if list.is_empty() { '[' } else { ',' };
        let key = claim.key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
        let (owner, ttl) = (claim.owner.to_hex(), nanos(claim.ttl));
        // Writing into a string cannot fail.
        let _ = write!(list, "{separator}[\"{key}\",\"{owner}\",{ttl}]");
    }
    (!list.is_empty()).then(|| list + "]")
}
