//! Renewals: many holds by one statement, hence by one commit.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Hold, Result, Standing, Validity};

use crate::connection::session::{GrantingServer, StatementSession, StoreContext};
use crate::dialect::{Cell, Dialect, Value};
use crate::lease::queue::granting_server_of;
use crate::tables::numbers::micros;
use crate::tables::statements::{BATCHES, of_size};
use crate::tables::words::Statement;

/// A hold to prolong, without what the server need not know.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    row: String,
    owner: [u8; 16],
    ttl: Duration,
    granting_server: Option<Arc<GrantingServer>>,
}

impl Renewal {
    pub(crate) fn of<D: Dialect>(context: &StoreContext<D>, hold: &Hold) -> Result<Self> {
        Ok(Self {
            row: context.row_name(&hold.claim.key)?.name,
            owner: *hold.claim.owner.as_bytes(),
            ttl: hold.claim.ttl,
            granting_server: granting_server_of::<D>(hold),
        })
    }
}

/// Groups of renewals with one ttl, each small enough for one statement. The numbers are their places in the list.
pub(crate) fn batches(renewals: &[Renewal]) -> Vec<Vec<usize>> {
    let mut by_ttl: BTreeMap<Duration, Vec<usize>> = BTreeMap::new();
    for (place, renewal) in renewals.iter().enumerate() {
        by_ttl.entry(renewal.ttl).or_default().push(place);
    }
    let largest = BATCHES[BATCHES.len() - 1];
    by_ttl.values().flat_map(|places| places.chunks(largest).map(<[usize]>::to_vec)).collect()
}

/// Prolongs those of a group that this server has granted. Again, if it turns out meanwhile that another server is there.
pub(crate) async fn renew<D: Dialect>(session: &mut StatementSession<D>, batch: &[Renewal]) -> Vec<Result<Standing>> {
    let granting_server = session.granting_server.clone();
    let answers = renew_of(&granting_server, session, batch).await;
    if session.granting_server == granting_server {
        return answers;
    }
    let granting_server = session.granting_server.clone();
    renew_of(&granting_server, session, batch).await
}

async fn renew_of<D: Dialect>(
    granting_server: &GrantingServer,
    session: &mut StatementSession<D>,
    batch: &[Renewal],
) -> Vec<Result<Standing>> {
    let is_here =
        |renewal: &Renewal| renewal.granting_server.as_ref().is_none_or(|granted| **granted == *granting_server);
    let here: Vec<_> = batch.iter().filter(|renewal| is_here(renewal)).cloned().collect();
    let mut answers = renew_here(session, &here).await.into_iter();
    let mut answer = |is_here: bool| if is_here { answers.next() } else { None };
    batch.iter().map(|renewal| answer(is_here(renewal)).unwrap_or_else(|| Err(moved()))).collect()
}

/// Prolongs a group of one ttl. If a row of it is locked by somebody else, the others are prolonged without it.
async fn renew_here<D: Dialect>(session: &mut StatementSession<D>, batch: &[Renewal]) -> Vec<Result<Standing>> {
    match renew_together(session, batch).await {
        Ok(standings) => standings.into_iter().map(Ok).collect(),
        Err(error) if batch.len() > 1 && !session.broken => match renew_apart(session, batch, &error).await {
            Ok(answers) => answers,
            Err(_) => batch.iter().map(|_| Err(unknown(&error))).collect(),
        },
        Err(error) => batch.iter().map(|_| Err(unknown(&error))).collect(),
    }
}

/// Prolongs the holds whose rows no other session keeps locked. Each locked row would take a second to find out, and
/// the last holds would never have their turn.
async fn renew_apart<D: Dialect>(
    session: &mut StatementSession<D>,
    batch: &[Renewal],
    error: &Error,
) -> Result<Vec<Result<Standing>>> {
    let context = session.context.clone();
    let held = owners(session, &context.statements.renewed, batch).await?;
    let unlocked = owners(session, &context.statements.unlocked, batch).await?;
    let free: Vec<_> = batch.iter().filter(|renewal| unlocked.contains(&renewal.owner[..])).cloned().collect();
    let mut renewed = renew_together(session, &free).await?.into_iter();
    let answer = |renewal: &Renewal| {
        let owner = &renewal.owner[..];
        match (unlocked.contains(owner), held.contains(owner)) {
            (true, _) => renewed.next().map_or_else(|| Err(unknown(error)), Ok),
            (false, true) => Err(unknown(error)),
            (false, false) => Ok(Standing::Lost),
        }
    };
    Ok(batch.iter().map(answer).collect())
}

async fn renew_together<D: Dialect>(session: &mut StatementSession<D>, batch: &[Renewal]) -> Result<Vec<Standing>> {
    let context = session.context.clone();
    let Some(ttl) = batch.first().map(|renewal| renewal.ttl) else { return Ok(Vec::new()) };
    let (size, renew) = of_size(&context.statements.renew, batch.len());
    let mut values = vec![Value::Int(micros(ttl))];
    values.extend(names_and_owners(batch, size));
    let from = context.clock.now();
    let granting_server = session.granting_server.clone();
    let prolonged = session.ask(renew, &values).await?.changed;
    // The statement may have been sent once more, over a new connection.
    if session.granting_server != granting_server {
        return Err(moved());
    }
    let standing = Standing::Renewed(Validity::new(from, ttl));
    // Of a statement that changes two tables, some servers count the rows of both.
    let counts_holds = context.dialect.shedlock().is_none();
    if counts_holds && usize::try_from(prolonged).is_ok_and(|count| count == batch.len()) {
        return Ok(vec![standing; batch.len()]);
    }
    // A hold that is there now was there before, so it was prolonged.
    let held = owners(session, &context.statements.renewed, batch).await?;
    let of = |renewal: &Renewal| if held.contains(&renewal.owner[..]) { standing } else { Standing::Lost };
    Ok(batch.iter().map(of).collect())
}

/// The owners that a look at the rows of a batch returns.
async fn owners<D: Dialect>(
    session: &mut StatementSession<D>,
    look: &[(usize, Statement)],
    batch: &[Renewal],
) -> Result<HashSet<Vec<u8>>> {
    let (size, look) = of_size(look, batch.len());
    let values: Vec<_> = names_and_owners(batch, size).collect();
    let rows = session.ask(look, &values).await?.rows;
    Ok(rows.into_iter().filter_map(|row| bytes(row.into_iter().next()?)).collect())
}

/// `size` row names, and then `size` owners. If the batch is smaller than the statement, its last renewal is repeated.
fn names_and_owners(batch: &[Renewal], size: usize) -> impl Iterator<Item = Value<'_>> {
    let filled = move || (0..size).filter_map(move |place| batch.get(place).or(batch.last()));
    filled().map(|renewal| Value::Text(&renewal.row)).chain(filled().map(|renewal| Value::Bytes(&renewal.owner)))
}

fn moved() -> Error {
    Error::outage(
        "the connection leads to another server than the one that granted the lock, so it is unknown whether the lock is \
         still held",
    )
}

fn bytes(cell: Cell) -> Option<Vec<u8>> {
    if let Cell::Bytes(bytes) = cell { Some(bytes) } else { None }
}

/// The same error for each of many holds. A cause has no copy.
pub(crate) fn unknown(error: &Error) -> Error {
    error.again()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_of_one_ttl_are_renewed_together_and_no_batch_is_too_large() {
        let renewal =
            |ttl| Renewal { row: "k".into(), owner: [0; 16], ttl: Duration::from_secs(ttl), granting_server: None };
        let mut renewals: Vec<_> = (0..200).map(|_| renewal(30)).collect();
        renewals.insert(7, renewal(1));
        let batches = batches(&renewals);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [1, 128, 72]);
        assert_eq!(batches[0], [7]);
    }
}
