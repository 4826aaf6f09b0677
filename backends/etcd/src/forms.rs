//! The forms in which programs keep locks in one cluster. Under the same key the other form is another lock, so each
//! program notes its form, and a readiness probe reports the other one.

use dlock_contract::{ErrorKind, Result};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};

use super::connection::Connection;
use super::fault::Fault;
use super::names::Layout;

/// The prefix of one key for each form. Every account may write it, because it begins with [`EPOCHS`](super::names::EPOCHS).
const FORMS: &str = "dl1-epoch/form/";

/// The time for which a form stays noted, in seconds.
const A_DAY: i64 = 86_400;

/// Notes the form of this program's locks, and reports the other form if it was used lately.
pub(super) async fn note(connection: &Connection, layout: Layout) -> Result<Vec<String>> {
    match find_and_note(connection, layout).await {
        // Locks do not need the note.
        Err(Fault::NoSpace | Fault::Refused(ErrorKind::PermissionDenied, _)) => Ok(Vec::new()),
        found => Ok(found?),
    }
}

async fn find_and_note(connection: &Connection, layout: Layout) -> Result<Vec<String>, Fault> {
    let found = connection.get(FORMS.as_bytes(), GetOptions::new().with_prefix().with_keys_only()).await?;
    let is_noted = |layout| found.kvs().iter().any(|entry| entry.key() == key(layout).as_bytes());
    if !is_noted(layout) {
        let lease = connection.grant(A_DAY).await?.id();
        let is_missing = Compare::create_revision(key(layout), CompareOp::Equal, 0);
        let put = TxnOp::put(key(layout), "", Some(PutOptions::new().with_lease(lease)));
        let noted = connection.txn(Txn::new().when([is_missing]).and_then([put])).await;
        // Another process has noted it meanwhile, or this account may not.
        if !noted.as_ref().is_ok_and(|noted| noted.succeeded) {
            connection.revoke(lease).await?;
        }
        noted?;
    }
    let (other, form) = match layout {
        Layout::Own => (Layout::Literal, "with"),
        Layout::Literal => (Layout::Own, "without"),
    };
    let finding =
        || format!("programs lock in this cluster {form} keys=literal too: under the same key that is another lock");
    Ok(is_noted(other).then(finding).into_iter().collect())
}

fn key(layout: Layout) -> String {
    let form = match layout {
        Layout::Own => "own",
        Layout::Literal => "literal",
    };
    format!("{FORMS}{form}")
}
