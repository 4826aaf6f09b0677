//! The forms in which programs keep locks in one ensemble. Under the same key the other form, or another chroot, is
//! another lock, so each program notes its form below its chroot, and a readiness probe reports the others.

use dlock_contract::Result;
use futures::future::join_all;
use zookeeper_client::{Client, CreateMode, Error as ClientError, Stat};

use crate::place::Shared;
use crate::server::fault::fault;
use crate::server::paths::{Paths, form};

/// A form counts as used for a day, in milliseconds.
const A_DAY: i64 = 86_400_000;

/// A node with more children than this is not searched for chroots: its list would be long, and the locks of other programs may
/// be in it.
const MOST_CHILDREN: i32 = 64;

/// Notes the form of this program's locks, and reports the forms and chroots that were used lately. Chroots are looked
/// for above this one, and one level below each of those.
pub(crate) async fn note(client: &Client, shared: &Shared) -> Result<Vec<String>> {
    let own = (shared.paths.root().to_owned(), form(shared.paths.is_literal()).to_owned());
    let now = match put(client, shared, &Paths::form_below(&own.0, &own.1)).await {
        Ok(stat) => stat.mtime,
        // Locks do not need the note. With `keys=literal` the account may be without this right.
        Err(ClientError::NoAuth | ClientError::QuotaExceeded) => return Ok(Vec::new()),
        Err(error) => return Err(fault(&error)),
    };
    let roots = roots(client, &own.0).await?;
    let noted = join_all(roots.iter().map(|root| noted_below(client, root))).await;
    let mut findings = Vec::new();
    for (root, noted) in roots.iter().zip(noted) {
        for (form, stat) in noted? {
            if now - stat.mtime < A_DAY && (root, &form) != (&own.0, &own.1) {
                findings.push(finding(&own.0, root, &form));
            }
        }
    }
    Ok(findings)
}

async fn put(client: &Client, shared: &Shared, path: &str) -> Result<Stat, ClientError> {
    match client.set_data(path, b"", None).await {
        Err(ClientError::NoNode) => {}
        answer => return answer,
    }
    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
    client.mkdir(parent, &shared.parents()).await?;
    match client.create(path, b"", &CreateMode::Persistent.with_acls(shared.acls)).await {
        // Another process has made it meanwhile.
        Err(ClientError::NodeExists) => client.set_data(path, b"", None).await,
        created => created.map(|(stat, _)| stat),
    }
}

/// The chroots that may have locks.
async fn roots(client: &Client, own: &str) -> Result<Vec<String>> {
    let mut roots = Vec::new();
    let above = own.match_indices('/').map(|(at, _)| &own[..at]).chain([own]);
    for root in above {
        let path = if root.is_empty() { "/" } else { root };
        let is_short = readable(client.check_stat(path).await)?.flatten();
        if is_short.is_some_and(|stat| stat.num_children <= MOST_CHILDREN) {
            let children = readable(client.list_children(path).await)?.unwrap_or_default();
            roots.extend(children.into_iter().map(|child| format!("{root}/{child}")));
        }
        roots.push(root.to_owned());
    }
    roots.sort();
    roots.dedup();
    Ok(roots)
}

/// The forms that are noted below a chroot, and when.
async fn noted_below(client: &Client, root: &str) -> Result<Vec<(String, Stat)>> {
    let mut noted = Vec::new();
    for form in [form(false), form(true)] {
        if let Some(Some(stat)) = readable(client.check_stat(&Paths::form_below(root, form)).await)? {
            noted.push((form.to_owned(), stat));
        }
    }
    Ok(noted)
}

/// `None`: there is no such node, or the account may not look at it.
fn readable<T>(answer: Result<T, ClientError>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::NoNode | ClientError::NoAuth) => Ok(None),
        Err(error) => Err(fault(&error)),
    }
}

fn finding(own: &str, root: &str, form: &str) -> String {
    let place = match root {
        root if root == own => "below this chroot".to_owned(),
        "" => "without a chroot".to_owned(),
        root => format!("below the chroot {root}"),
    };
    let form = if form == self::form(true) { "with" } else { "without" };
    format!("programs lock {place} {form} keys=literal: under the same key that is another lock")
}
