//! The words and requests of named locks on PostgreSQL.

use std::collections::HashSet;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, LockKey, Mode, Result};
use dlock_sql::{
    Dialect, LockName, NamedAnswer, NamedDialect, NamedWait, NamedWords, ReadWriteWords, RowDialect, SequenceWords,
    SessionId, check_tables, prepare_tables,
};
use dlock_store::Clock;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row};

use crate::lease::dialect::{Postgres, set_up};
use crate::lease::tables::{self, NAMED_LOCKS, Tables};
use crate::named::tokens;
use crate::server::fault::{fault, state};
use crate::server::other_tables;
use crate::server::pieces::{self, FREE_TURN};
use crate::server::{endless_silence, refuse_endless_silence, writable_server};

/// Whether the row's session holds the row's lock. The server shows a lock of one number as two halves in two columns. It shows a
/// lock of two numbers as one unsigned number in each column. The end of the text is the lock mode.
macro_rules! is_held {
    ($mode:literal) => {
        concat!(
            "EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.pid = session \
             AND lock_id = CASE l.objsubid WHEN 1 THEN (l.classid::bigint << 32 | l.objid::bigint)::text \
                 ELSE l.classid::bigint::bit(32)::int || ',' || l.objid::bigint::bit(32)::int END \
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.mode = ",
            $mode,
            ")"
        )
    };
}

/// Switches off the server's own limits, which would end a wait.
const NO_LIMITS: &str = "\
    SELECT set_config(name, '0', false) FROM pg_settings \
    WHERE name IN ('transaction_timeout', 'idle_in_transaction_session_timeout')";

/// Lets the server notice that the client of a waiting statement is gone. Not every system supports this.
const CHECK_CLIENT: &str = "SET client_connection_check_interval = '250ms'";

/// Asks for a lock without a wait, if no writer waits for it. The turn ends with the statement.
const TRY_READ: &str = "\
    CASE WHEN pg_try_advisory_xact_lock_shared($7 # 7236281174072784242) THEN pg_try_advisory_lock_shared($7) ELSE false END";

const SESSION_ID: &str = "\
    SELECT pg_backend_pid()::bigint, (extract(epoch FROM backend_start) * 1000000)::bigint \
    FROM pg_stat_get_activity(pg_backend_pid())";

/// Makes the number of a lock's turn from that of the lock. It is frozen: the bytes are `dlockturn` without the last one.
const TURN: i64 = 0x646c_6f63_6b74_7572;

/// The longest wait of one statement. A setting can have 2^31 milliseconds at most, which is a little more.
const MAX_WAIT: Duration = Duration::from_secs(24 * 24 * 3600);

impl NamedDialect for Postgres {
    fn named_words(&self) -> NamedWords {
        NamedWords {
            on_conflict: "ON CONFLICT (k) DO UPDATE SET",
            is_held: is_held!("'ExclusiveLock'"),
            if_granted: None,
            sequence: Some(SequenceWords {
                try_lock: "pg_try_advisory_lock($7)",
                unlock: "pg_advisory_unlock($7)",
                who: "pg_backend_pid()::bigint",
                name: tokens::TOKENS,
            }),
            read_write: Some(ReadWriteWords {
                try_read: TRY_READ,
                is_held: is_held!("CASE WHEN is_write THEN 'ExclusiveLock' ELSE 'ShareLock' END"),
            }),
            longest_ttl: MAX_WAIT,
        }
    }

    fn lock_name(&self, key: &LockKey) -> Result<LockName> {
        let name = key.as_str();
        if name.starts_with("dl1:") {
            return Ok(LockName::number_of(key));
        }
        literal(name).ok_or_else(|| {
            let error = Error::new(
                ErrorKind::Unsupported { need: "a key that is a number, or two with a comma between".into() },
                "an advisory lock is a number of 64 bits, such as 42, or two of 32 bits, such as 1,42",
            );
            error.with_key(name)
        })
    }

    async fn connect_named(&self) -> Result<(PgConnection, SessionId)> {
        let mut conn = self.connect_directly().await?;
        if self.keeps_session() {
            set_up_named(&mut conn).await?;
        }
        let row = sqlx::raw_sql(SESSION_ID).fetch_one(&mut conn).await.map_err(fault)?;
        let id = SessionId { number: row.try_get(0).map_err(fault)?, began: row.try_get(1).map_err(fault)? };
        Ok((conn, id))
    }

    async fn prepare_named(&self, conn: &mut PgConnection) -> Result<()> {
        if !self.find_path(conn).await? {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "a connection that keeps its session".into() },
                "a pooler before the server gives each transaction another session, so an advisory lock cannot be held: \
                 connect to the server itself, or use way=lease",
            ));
        }
        refuse_endless_silence(conn).await?;
        set_up_named(conn).await?;
        prepare_tables(Tables { conn, names: &self.words().tables }, &NAMED_LOCKS).await?;
        tokens::prepare(conn, &self.words().tables).await
    }

    async fn named_health(&self, conn: &mut PgConnection) -> Result<Health> {
        writable_server(conn).await?;
        refuse_endless_silence(conn).await?;
        check_tables(Tables { conn, names: &self.words().tables }, &NAMED_LOCKS).await?;
        tokens::check(conn, &self.words().tables).await?;
        tokens::told_in(self.report_path(tables::health(conn, &self.words().tables).await?), conn, &self.words().tables)
            .await
    }

    async fn other_named_table(&self, conn: &mut PgConnection, way: (&str, &str)) -> Result<Option<String>> {
        other_tables::with_named_locks(conn, &self.words().tables, way).await
    }

    async fn end_after(&self, conn: &mut PgConnection, silence: Duration) -> Result<()> {
        let millis = silence.as_millis();
        // The second setting covers the time while a request or its answer is on its way.
        let set = format!("SET idle_session_timeout = {millis}; SET tcp_user_timeout = {millis}");
        match sqlx::raw_sql(AssertSqlSafe(set)).execute(conn).await {
            Err(error) if state(&error).as_deref() == Some("42704") => Err(endless_silence()),
            set => set.map(drop).map_err(fault),
        }
    }

    async fn lock(
        &self,
        conn: &mut PgConnection,
        session: SessionId,
        (lock, mode): (&LockName, Mode),
        wait: NamedWait,
    ) -> sqlx::Result<NamedAnswer> {
        let (granted, number) = if wait.time.is_zero() {
            let mut granted = format!("pg_try_advisory_lock{}", function_call(lock, mode));
            if mode == Mode::Read {
                let turn = turn_of(lock);
                granted = format!("CASE WHEN pg_try_advisory_xact_lock_shared({turn}) THEN {granted} ELSE false END");
            }
            let sql = format!("SELECT {granted}, pg_backend_pid()::bigint");
            let row = bound(&sql, lock).fetch_one(conn).await?;
            (row.try_get(0)?, row.try_get(1)?)
        } else {
            match lock_with_wait(conn, &self.clock, (lock, mode), wait).await {
                Ok(number) => (true, number),
                Err(error) => {
                    let answer = match state(&error).as_deref() {
                        Some("55P03") => NamedAnswer::Taken,
                        Some("57014" | "40P01") => NamedAnswer::Interrupted,
                        _ => return Err(error),
                    };
                    // If the server grants the lock in the moment in which it ends the wait, the statement fails and the
                    // session has the lock.
                    let sql = AssertSqlSafe(format!("ROLLBACK; {FREE_TURN}"));
                    sqlx::raw_sql(sql).execute(&mut *conn).await?;
                    return Ok(answer);
                }
            }
        };
        Ok(match granted {
            _ if number != session.number => NamedAnswer::Elsewhere,
            true => NamedAnswer::Granted,
            false => NamedAnswer::Taken,
        })
    }

    fn takes_at_once(&self, lock: &LockName) -> bool {
        !is_pair(lock)
    }

    async fn unlock(&self, conn: &mut PgConnection, lock: &LockName, mode: Mode) -> sqlx::Result<bool> {
        let sql = format!("SELECT pg_advisory_unlock{}", function_call(lock, mode));
        bound(&sql, lock).fetch_one(conn).await?.try_get(0)
    }

    async fn who_answers(&self, conn: &mut PgConnection) -> sqlx::Result<i64> {
        sqlx::query("SELECT pg_backend_pid()::bigint").fetch_one(conn).await?.try_get(0)
    }

    async fn end_session(&self, conn: &mut PgConnection, number: i64) -> sqlx::Result<()> {
        self.kill(conn, number).await
    }

    /// A session holds its locks until it frees them itself or ends. So this reads the sessions and not the locks: reading the
    /// locks blocks all locking on the server for a moment.
    async fn hold_all(&self, conn: &mut PgConnection, holds: &[(LockName, SessionId)]) -> sqlx::Result<Vec<bool>> {
        let numbers: HashSet<i64> = holds.iter().map(|(_, session)| session.number).collect();
        let numbers: Vec<_> = numbers.into_iter().collect();
        let sql = "SELECT pid::bigint, (extract(epoch FROM backend_start) * 1000000)::bigint \
            FROM pg_stat_get_activity(NULL) WHERE pid = ANY($1)";
        let rows = sqlx::query(sql).bind(numbers).fetch_all(conn).await?;
        let living = rows.iter().map(|row| Ok(SessionId { number: row.try_get(0)?, began: row.try_get(1)? }));
        let living = living.collect::<sqlx::Result<HashSet<_>>>()?;
        Ok(holds.iter().map(|(_, session)| living.contains(session)).collect())
    }
}

/// Reads a number, or two numbers with a comma between. Only one spelling of each number is accepted.
fn literal(text: &str) -> Option<LockName> {
    let number = match text.split_once(',') {
        None => text.parse().ok()?,
        Some((high, low)) => {
            let (high, low): (i32, i32) = (high.parse().ok()?, low.parse().ok()?);
            i64::from(high) << 32 | i64::from(low.cast_unsigned())
        }
    };
    let name = LockName { id: text.to_owned(), number };
    let written = match is_pair(&name) {
        true => halves(&name).0.to_string() + "," + &halves(&name).1.to_string(),
        false => number.to_string(),
    };
    (written == text).then_some(name)
}

/// Whether the lock has two numbers. PostgreSQL keeps such locks apart from those with one number.
fn is_pair(lock: &LockName) -> bool {
    lock.id.contains(',')
}

/// The end of the function's name, and the placeholders of its arguments.
fn function_call(lock: &LockName, mode: Mode) -> String {
    let shared = if mode == Mode::Read { "_shared" } else { "" };
    shared.to_owned() + if is_pair(lock) { "($1, $2)" } else { "($1)" }
}

/// The statement, with the numbers of the lock as its arguments.
fn bound(sql: &str, lock: &LockName) -> Query<'static, sqlx::Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    match is_pair(lock) {
        true => query.bind(halves(lock).0).bind(halves(lock).1),
        false => query.bind(lock.number),
    }
}

fn halves(lock: &LockName) -> (i32, i32) {
    let [high, low] = [lock.number >> 32, lock.number].map(|half| (half & 0xffff_ffff) as u32);
    (high.cast_signed(), low.cast_signed())
}

async fn set_up_named(conn: &mut PgConnection) -> Result<()> {
    set_up(conn).await?;
    sqlx::raw_sql(NO_LIMITS).execute(&mut *conn).await.map_err(fault)?;
    let _ = sqlx::raw_sql(CHECK_CLIENT).execute(conn).await;
    Ok(())
}

/// Waits for a lock, and returns the session that has it then.
async fn lock_with_wait(
    conn: &mut PgConnection,
    clock: &Clock,
    (lock, mode): (&LockName, Mode),
    wait: NamedWait,
) -> sqlx::Result<i64> {
    let shared = if mode == Mode::Read { "_shared" } else { "" };
    let turn = turn_of(lock);
    let wait = pieces::Wait {
        turn: format!("SELECT pg_advisory_lock{shared}({turn})"),
        begin: "BEGIN",
        lock: format!(
            "SELECT pg_backend_pid()::bigint FROM (SELECT pg_advisory_lock{shared}({}) OFFSET 0) granted",
            lock.id
        ),
        end: format!("SELECT pg_advisory_unlock{shared}({turn}); COMMIT"),
        // The server warns if it has nothing to free.
        undo: format!(
            "BEGIN; SET LOCAL client_min_messages = error; SELECT pg_advisory_unlock{shared}({}); COMMIT",
            lock.id
        ),
        time: wait.time.min(MAX_WAIT),
        silence: wait.silence,
    };
    let rows = pieces::wait(conn, clock, &wait).await?;
    rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

/// The number of the lock's turn. A reader that does not wait respects it too, so that readers pass no writer.
fn turn_of(lock: &LockName) -> i64 {
    lock.number ^ TURN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_has_one_number_in_all_statements() {
        assert!(TRY_READ.contains(&format!("$7 # {TURN}")));
    }

    #[test]
    fn a_literal_key_is_one_number_or_two() {
        for (text, number) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("1,42", (1 << 32) + 42)] {
            let name = literal(text).unwrap();
            assert_eq!((name.number, name.id.as_str()), (number, text));
        }
        let pair = literal("-1,-2147483648").unwrap();
        assert!(is_pair(&pair) && halves(&pair) == (-1, i32::MIN));
        for bad in
            ["", "a", "1.5", "+1", "01", "-0", "1,", ",1", "1,2,3", "1, 2", "9223372036854775808", "2147483648,1"]
        {
            assert!(literal(bad).is_none(), "{bad}");
        }
    }
}
