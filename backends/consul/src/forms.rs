//! The forms in which programs keep locks in one datacenter. Under the same key the other form is another lock, so each
//! program notes its form, and a readiness probe reports the other one.

use std::time::Duration;

use dlock_contract::{ErrorKind, Result};

use crate::api::kv;
use crate::api::session::{self, Behavior, NewSession};
use crate::api::txn::{self, Op, TxnOutcome};
use crate::server::http::Http;

/// The prefix of one key for each form.
const FORMS: &str = "dl1:!form:";

/// The ttl of a note. Consul's servers may wait for twice as long.
const HALF_A_DAY: Duration = Duration::from_secs(43_200);

/// Notes the form of this program's locks, and reports the other form if it was used lately.
pub(crate) async fn note(http: &Http) -> Result<Vec<String>> {
    match find_and_note(http).await {
        // Locks do not need the note. With `keys=literal` the token may be without this right.
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Ok(Vec::new()),
        found => found,
    }
}

async fn find_and_note(http: &Http) -> Result<Vec<String>> {
    let literal = http.settings().literal;
    let found = kv::names(http, FORMS).await?;
    let is_noted = |literal| found.contains(&key(literal));
    if !is_noted(literal) {
        put(http, &key(literal)).await?;
    }
    let form = if literal { "without" } else { "with" };
    let finding =
        || format!("programs lock in this datacenter {form} keys=literal too: under the same key that is another lock");
    Ok(is_noted(!literal).then(finding).into_iter().collect())
}

/// Puts a key that ends with a session of its own.
async fn put(http: &Http, key: &str) -> Result<()> {
    let timer =
        NewSession { name: "dlock form", ttl: HALF_A_DAY, lock_delay: Duration::ZERO, behavior: Behavior::Delete };
    let timer = session::create(http, &timer).await?;
    let put = txn::run(http, &[Op::lock(key, &timer, 0, "")]).await;
    if !matches!(put, Ok(TxnOutcome::Done(_))) {
        // Refused: another process has put the key meanwhile.
        session::destroy(http, &timer).await?;
    }
    put.map(drop)
}

fn key(literal: bool) -> String {
    format!("{FORMS}{}", if literal { "literal" } else { "own" })
}
