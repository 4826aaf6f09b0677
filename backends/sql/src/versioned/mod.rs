//! Version columns in tables of the user's own: read, work, and write if nobody has written meanwhile.
//!
//! No lock is taken. The write compares and sets in one statement, so it is right at every isolation level and needs no
//! transaction.

use std::marker::PhantomData;

use dlock_contract::{Error, ErrorKind, Result};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Row, Type};

/// One server's part of version columns.
pub trait VersionedServer {
    /// Its client.
    type Client: Database;

    /// Whether placeholders have numbers: `$1`, and not `?`.
    const IS_NUMBERED: bool;

    /// The server's time in microseconds since 1970.
    const NOW: &'static str;

    /// How many rows a statement has matched.
    fn changed(done: &<Self::Client as Database>::QueryResult) -> u64;

    /// The server's error as an error of the contract.
    fn fault(error: sqlx::Error) -> Error;
}

/// A table with a column that has the version of each row.
#[derive(Debug)]
pub struct Versioned<S> {
    table: &'static str,
    key: &'static str,
    version: &'static str,
    server: PhantomData<fn() -> S>,
}

/// A row as it was read, and its version then.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadRow<R> {
    /// The columns that were asked for, in their order, and the version behind them.
    pub row: R,
    /// The version.
    pub version: i64,
}

type VersionedQuery<S> =
    Query<'static, <S as VersionedServer>::Client, <<S as VersionedServer>::Client as Database>::Arguments>;

impl<S: VersionedServer> Versioned<S> {
    /// A table, its unique column by which a row is found, and its column for the version: a whole number that is never
    /// NULL. Statements have the names as they are.
    #[must_use]
    pub const fn new(table: &'static str, key: &'static str, version: &'static str) -> Self {
        Self { table, key, version, server: PhantomData }
    }

    /// The version of a new row: the server's time, as an expression for its `INSERT`.
    ///
    /// If a row is deleted and made again with version 1, a writer who has read version 1 of the former one writes over the
    /// new one. With this, versions of a key rise for ever, unless the server's clock is set back.
    pub const FIRST_VERSION: &'static str = S::NOW;

    /// Reads these columns of a row, and its version; `None` if there is no such row.
    ///
    /// # Errors
    /// [`SchemaMismatch`](ErrorKind::SchemaMismatch) if the version is NULL or no whole number of 64 bits; else as the server says.
    pub async fn read<K>(
        &self,
        conn: &mut <S::Client as Database>::Connection,
        columns: &'static str,
        key: K,
    ) -> Result<Option<ReadRow<<S::Client as Database>::Row>>>
    where
        K: Encode<'static, S::Client> + Type<S::Client> + Send + 'static,
        i64: for<'r> Decode<'r, S::Client> + Type<S::Client>,
        usize: ColumnIndex<<S::Client as Database>::Row>,
        <S::Client as Database>::Arguments: IntoArguments<S::Client>,
        for<'c> &'c mut <S::Client as Database>::Connection: Executor<'c, Database = S::Client>,
    {
        let Self { table, key: by, version, .. } = self;
        let place = if S::IS_NUMBERED { "$1" } else { "?" };
        let sql = format!("SELECT {columns}, {version} FROM {table} WHERE {by} = {place}");
        let query: VersionedQuery<S> = sqlx::query(AssertSqlSafe(sql)).bind(key);
        let Some(row) = query.fetch_optional(conn).await.map_err(S::fault)? else { return Ok(None) };
        let version = row.try_get(row.len() - 1).map_err(|error| {
            let text = format!("the column {version} of {table} must be BIGINT and NOT NULL: it has the row's version");
            Error::new(ErrorKind::SchemaMismatch, text).because(error)
        })?;
        Ok(Some(ReadRow { row, version }))
    }

    /// Changes a row, if its version is still the one that was read, and raises the version.
    ///
    /// `change` is the text between `SET` and `WHERE`, such as `remaining = $1`; `bind` binds its values, in their
    /// order.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) if another writer was faster or has deleted the row, so that
    /// `#[dlock::optimistic]` runs the function again. [`ConfigInvalid`](ErrorKind::ConfigInvalid) if several rows have the key: roll
    /// back then. Else as the server says.
    pub async fn write<K>(
        &self,
        conn: &mut <S::Client as Database>::Connection,
        key: K,
        version: i64,
        change: &'static str,
        bind: impl FnOnce(VersionedQuery<S>) -> VersionedQuery<S>,
    ) -> Result<()>
    where
        K: Encode<'static, S::Client> + Type<S::Client> + Send + 'static,
        i64: Encode<'static, S::Client> + Type<S::Client>,
        <S::Client as Database>::Arguments: IntoArguments<S::Client>,
        for<'c> &'c mut <S::Client as Database>::Connection: Executor<'c, Database = S::Client>,
    {
        let Self { table, key: by, version: column, .. } = self;
        let [first, second] = match S::IS_NUMBERED {
            // The values of the change come first.
            true => [1, 2].map(|place| format!("${}", places(change) + place)),
            false => ["?".to_owned(), "?".to_owned()],
        };
        let sql = format!(
            "UPDATE {table} SET {column} = {column} + 1, {change} WHERE {by} = {first} AND {column} = {second}"
        );
        let done =
            bind(sqlx::query(AssertSqlSafe(sql))).bind(key).bind(version).execute(conn).await.map_err(S::fault)?;
        match S::changed(&done) {
            1 => Ok(()),
            0 => Err(Error::new(ErrorKind::Conflict, format!("another writer of {table} was faster"))),
            rows => Err(Error::config(
                "key",
                format!("{rows} rows of {table} have one {by}: name a unique column, and roll this change back"),
            )),
        }
    }
}

/// The highest number of a placeholder.
fn places(change: &str) -> usize {
    let numbers = change.split('$').skip(1).filter_map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..digits)?.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_change_are_counted_by_their_highest_number() {
        assert_eq!(places("a = a + 1"), 0);
        assert_eq!(places("a = $1, b = $2 + $1"), 2);
        assert_eq!(places("a = $12"), 12);
    }
}
