//! The sequence that tokens are drawn from, and what makes a grant wait for the disk.

use dlock_contract::{Error, ErrorKind, Health, Result};
use dlock_sql::{NAMED, READ_WRITE, TableNames};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;

/// The sequence of the tokens.
pub(crate) const TOKENS: &str = "{t}tokens";

const CREATE: &str = include_str!("../../migrations/20261124000003_dlock_tokens.sql");

/// With a cache, a session would draw some values at once, and use the last of them after others have drawn higher ones. A
/// sequence that is not logged begins anew after a crash. No token is above 2^53.
const CHECK: &str = "\
    SELECT c.relkind = 'S' AND c.relpersistence = 'p' AND s.seqtypid = 'bigint'::regtype AND s.seqincrement = 1 \
            AND s.seqcache = 1 AND NOT s.seqcycle AND s.seqmax > 9007199254740992, \
        CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'UPDATE') ELSE true END \
    FROM pg_class c LEFT JOIN pg_sequence s ON s.seqrelid = c.oid WHERE c.oid = to_regclass('{sequence}')";

const LOGGED: &str = "\
    SELECT string_agg(oid::regclass::text, ' and ') FROM pg_class \
    WHERE oid IN (to_regclass('{named}'), to_regclass('{read_write}')) AND relpersistence = 'p'";

/// Makes the sequence if it is missing. Checks its form, and that the account may draw from it.
pub(crate) async fn prepare(conn: &mut PgConnection, names: &TableNames) -> Result<()> {
    if is_there(conn, names).await? {
        return Ok(());
    }
    let create = names.create(CREATE).replacen(" SEQUENCE ", " SEQUENCE IF NOT EXISTS ", 1);
    match sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault) {
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Err(lacks_rights(names)),
        // Another program may have made it at the same time.
        made => match is_there(conn, names).await? {
            true => Ok(()),
            false => made.and_then(|_| Err(missing(names))),
        },
    }
}

/// Checks that it exists, has the right form, and that the account may draw from it.
pub(crate) async fn check(conn: &mut PgConnection, names: &TableNames) -> Result<()> {
    if is_there(conn, names).await? { Ok(()) } else { Err(missing(names)) }
}

async fn is_there(conn: &mut PgConnection, names: &TableNames) -> Result<bool> {
    let sql = CHECK.replace("{sequence}", &names.full(TOKENS));
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(conn).await.map_err(fault)?;
    let Some(row) = row else { return Ok(false) };
    let (fits, may_draw): (bool, bool) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
    match (fits, may_draw) {
        (false, _) => {
            let text = format!(
                "{} is no sequence, or has other options; this creates it: {}",
                names.full(TOKENS),
                names.create(CREATE)
            );
            Err(Error::new(ErrorKind::SchemaMismatch, text))
        }
        (true, false) => Err(lacks_rights(names)),
        (true, true) => Ok(true),
    }
}

/// A finding for tables that were made by hand, and are durable for nothing.
pub(crate) async fn told_in(health: Health, conn: &mut PgConnection, names: &TableNames) -> Result<Health> {
    let sql = LOGGED.replace("{named}", &names.full(NAMED)).replace("{read_write}", &names.full(READ_WRITE));
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await.map_err(fault)?;
    let logged: Option<String> = row.try_get(0).map_err(fault)?;
    Ok(match logged {
        None => health,
        Some(tables) => health.finding(format!(
            "{tables} must survive no crash, but is written to the disk at each grant, which makes locks slow: \
             ALTER TABLE … SET UNLOGGED"
        )),
    })
}

fn missing(names: &TableNames) -> Error {
    let text = format!("the sequence {} is missing: {}", names.full(TOKENS), names.create(CREATE));
    Error::new(ErrorKind::SchemaMismatch, text)
}

fn lacks_rights(names: &TableNames) -> Error {
    let name = names.full(TOKENS);
    let text = format!(
        "the account may not draw fencing tokens: GRANT UPDATE ON SEQUENCE {name} to it; if it is missing, an account that may \
         create it runs: {}",
        names.create(CREATE)
    );
    Error::new(ErrorKind::PermissionDenied, text)
}
