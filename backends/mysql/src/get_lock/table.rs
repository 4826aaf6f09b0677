//! The one table: fencing tokens, notes, and requests to break a hold. A row for each key that was ever locked, and it
//! stays.
//!
//! The key is in two columns, because an index over all of its 4096 bytes is not possible. With the whole key in one
//! column and an index over its beginning, the server would sort the whole range for each page of a listing.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};
use sqlx::Row;

use super::link::Link;
use crate::lease::tables;
use crate::server::fault::fault;

macro_rules! create {
    () => {
        "CREATE TABLE IF NOT EXISTS dlock_named (\
            name VARBINARY(64) NOT NULL PRIMARY KEY, \
            token BIGINT UNSIGNED NOT NULL, \
            conn BIGINT UNSIGNED NOT NULL, \
            note VARBINARY(256) NOT NULL, \
            key_head VARBINARY(512) NOT NULL, \
            key_rest VARBINARY(3584) NOT NULL, \
            hold VARBINARY(16) NOT NULL, \
            broken_hold VARBINARY(16), \
            broken_record VARBINARY(256), \
            KEY by_key (key_head, name)\
        ) ENGINE=InnoDB"
    };
}

/// The columns as `name:type:key`, in order; some releases give a width, others do not.
const COLUMNS: [&str; 9] = [
    "name:varbinary(64):PRI",
    "token:bigint unsigned:",
    "conn:bigint unsigned:",
    "note:varbinary(256):",
    "key_head:varbinary(512):MUL",
    "key_rest:varbinary(3584):",
    "hold:varbinary(16):",
    "broken_hold:varbinary(16):",
    "broken_record:varbinary(256):",
];

/// The parts of a key in the two columns.
pub(super) fn head_and_rest(key: &str) -> (&[u8], &[u8]) {
    key.as_bytes().split_at(key.len().min(512))
}

/// Makes the table if it is missing, and looks at what is there.
pub(super) async fn prepare(mut link: Link) -> Result<Link> {
    refuse_clusters(&mut link).await?;
    if !look(&mut link).await? {
        let made = sqlx::raw_sql(create!()).execute(link.conn()).await.map_err(fault);
        made.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Error::new(
                ErrorKind::PermissionDenied,
                concat!(
                    "the account sees no table dlock_named and may not make it; grant it SELECT, INSERT and UPDATE on that \
                     table, which another one can make: ",
                    create!()
                ),
            ),
            _ => error,
        })?;
        if !look(&mut link).await? {
            return Err(Error::new(ErrorKind::SchemaMismatch, concat!("dlock's table is missing: ", create!())));
        }
    }
    tables::prepare_meta(link.conn()).await?;
    probe(link).await
}

/// Does what an acquisition does, so that a right that is missing is told now and not at the first lock. Nothing stays:
/// the row is rolled back, and its name is nobody's.
async fn probe(mut link: Link) -> Result<Link> {
    let name = format!("d1probe{:032x}", fastrand::u128(..));
    sqlx::raw_sql("START TRANSACTION").execute(link.conn()).await.map_err(fault)?;
    let (link, _) = link.agree(&name, "").await?;
    let (link, _) = link.lock(&name, Duration::ZERO).await?;
    let (link, _) = link.stamp(&name, "", "", "").await?;
    let (link, _) = link.holder(&name).await?;
    let (mut link, _) = link.unlock(&name).await?;
    sqlx::raw_sql("ROLLBACK").execute(link.conn()).await.map_err(fault)?;
    Ok(link)
}

/// Whether the table exists and has the right columns.
async fn look(link: &mut Link) -> Result<bool> {
    let sql = "\
        SELECT CAST(CONCAT(c.column_name, ':', c.column_type, ':', c.column_key) AS CHAR), CAST(t.engine AS CHAR) \
        FROM information_schema.columns c JOIN information_schema.tables t \
            ON t.table_schema = c.table_schema AND t.table_name = c.table_name \
        WHERE c.table_schema = DATABASE() AND c.table_name = 'dlock_named' ORDER BY c.ordinal_position";
    let rows = sqlx::raw_sql(sql).fetch_all(link.conn()).await.map_err(fault)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let engine: Option<String> = row.try_get(1).map_err(fault)?;
        if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case("innodb")) {
            return Err(Error::new(
                ErrorKind::SchemaMismatch,
                "dlock_named must be an InnoDB table, because other engines may lose rows",
            ));
        }
        let column: String = row.try_get(0).map_err(fault)?;
        found.push(column.replace("bigint(20)", "bigint"));
    }
    if found.is_empty() {
        return Ok(false);
    }
    if found != COLUMNS {
        return Err(Error::new(
            ErrorKind::SchemaMismatch,
            concat!("dlock_named does not have the right columns; it must be made so: ", create!()),
        ));
    }
    Ok(true)
}

/// In a cluster where every node can be written, each node has named locks of its own: they exclude nobody.
async fn refuse_clusters(link: &mut Link) -> Result<()> {
    let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode')";
    let rows = sqlx::raw_sql(sql).fetch_all(link.conn()).await.map_err(fault)?;
    for row in &rows {
        let (name, value): (String, String) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
        if matches!(
            (name.as_str(), value.as_str()),
            ("wsrep_on", "ON") | ("group_replication_single_primary_mode", "OFF")
        ) {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "a server whose named locks all writers see".into() },
                "this server is a node of a cluster with several writable nodes, and each has named locks of its own",
            ));
        }
    }
    Ok(())
}
