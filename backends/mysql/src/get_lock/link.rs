//! A connection to the server, and the statements that run on it.
//!
//! A link is handed into every request and comes back only with an answer. So a request that fails, or whose future is
//! dropped in the middle, closes the socket, and with the session the server frees the lock.

use std::fmt::Write;
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, Clock, Error, ErrorKind, HoldId, Result};
use futures::FutureExt;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};

use super::table::head_and_rest;
use crate::server::Server;
use crate::server::fault::fault;

/// How long the server may take for anything that is not a wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The next token is above the last one and not below the server's time, so it rises even where rows were lost. The
/// server's time in universal time: a session's time zone does not move it. Assigned from left to right. The record of
/// another hold stays for its holder; an earlier break of this very hold is over.
const STAMP: &str = "\
    INSERT INTO dlock_named (name, token, conn, note, key_head, key_rest, hold) VALUES ( \
        ?, LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), CONNECTION_ID(), ?, ?, ?, ?) \
    ON DUPLICATE KEY UPDATE \
        token = LAST_INSERT_ID(GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))), \
        conn = VALUES(conn), note = VALUES(note), hold = VALUES(hold), broken_hold = NULLIF(broken_hold, VALUES(hold))";

/// A row counts only if the session that wrote it holds the lock.
const HOLDER: &str = "SELECT note, hold, token FROM dlock_named WHERE name = ? AND conn = IS_USED_LOCK(?)";

const READ_META: &str = "SELECT word FROM dlock_meta WHERE name = ?";

/// Changes nothing if the row is there.
const WRITE_META: &str = "\
    INSERT INTO dlock_meta (name, word, number) VALUES (?, ?, 0) ON DUPLICATE KEY UPDATE number = number";

/// Seconds of silence that every platform allows. Some cut a longer time, without an error.
const ANYWHERE: u64 = 2_000_000;

/// A connection, which is one session of the server.
#[derive(Debug)]
pub(super) struct Link {
    conn: MySqlConnection,
    /// The server's name for the session.
    pub(super) id: u64,
    /// After how many seconds of silence the server ends it.
    silence: u64,
    /// Since when it is parked; only a parked link has been used before.
    pub(super) parked: Option<BootInstant>,
}

/// The holder's row.
#[derive(Debug)]
pub(super) struct HolderRow {
    pub(super) note: String,
    pub(super) hold: Option<HoldId>,
    pub(super) token: u64,
}

/// The answer about several holds.
#[derive(Debug)]
pub(super) struct Standings {
    /// Which sessions hold their locks, in the order of the question.
    pub(super) held: Vec<bool>,
    /// Holds that an operator asks to break.
    pub(super) broken: Vec<(HoldId, BreakRecord)>,
}

fn refuse_replica(read_only: &str) -> Result<()> {
    // A word in newer releases of MariaDB, a number elsewhere.
    if matches!(read_only, "0" | "OFF") {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NotPrimary,
        "the server is read-only, such as a replica: a lock taken there excludes nobody on the primary",
    ))
}

/// The answer of `GET_LOCK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted,
    Taken,
}

impl Link {
    /// Connects, and makes sure that a lock taken here excludes somebody.
    pub(super) async fn connect(server: &Server) -> Result<Self> {
        server.is_known().await?;
        let mut conn = server.options.connect().await.map_err(fault)?;
        let row = sqlx::raw_sql("SELECT CONNECTION_ID(), CAST(@@read_only AS CHAR)")
            .fetch_one(&mut conn)
            .await
            .map_err(fault)?;
        let id: u64 = row.try_get_unchecked(0).map_err(fault)?;
        refuse_replica(&row.try_get::<String, _>(1).map_err(fault)?)?;
        Ok(Self { conn, id, silence: 0, parked: None })
    }

    /// The server's version, if it can still be written to.
    pub(super) async fn version(mut self) -> Result<(Self, String)> {
        let row = sqlx::raw_sql("SELECT CAST(VERSION() AS CHAR), CAST(@@read_only AS CHAR)")
            .fetch_one(&mut self.conn)
            .await
            .map_err(fault)?;
        refuse_replica(&row.try_get::<String, _>(1).map_err(fault)?)?;
        let version = row.try_get(0).map_err(fault)?;
        Ok((self, version))
    }

    /// Lets the server end the session after so much silence.
    pub(super) async fn end_after(mut self, silence: Duration) -> Result<Self> {
        let seconds = whole_seconds(silence);
        if self.silence == seconds {
            return Ok(self);
        }
        // The fencing row must be committed by itself, whatever the server's default.
        let set = AssertSqlSafe(format!("SET SESSION autocommit = 1, wait_timeout = {seconds}"));
        sqlx::raw_sql(set).execute(&mut self.conn).await.map_err(fault)?;
        let set = if seconds > ANYWHERE { self.read_silence().await? } else { seconds };
        if set != seconds {
            let (min, max) = (Duration::from_secs(1), Duration::from_secs(set));
            return Err(Error::new(
                ErrorKind::TtlOutOfRange { min, max },
                format!("this server ends a silent session after {set} s at the latest, so a ttl cannot be longer"),
            ));
        }
        self.silence = seconds;
        Ok(self)
    }

    /// Lets each statement be a transaction by itself, whatever the server's default. Otherwise each look would see the
    /// table as it was at the first one.
    pub(super) async fn autocommit(mut self) -> Result<Self> {
        sqlx::raw_sql("SET SESSION autocommit = 1").execute(&mut self.conn).await.map_err(fault)?;
        Ok(self)
    }

    async fn read_silence(&mut self) -> Result<u64> {
        let row = sqlx::raw_sql("SELECT CAST(@@SESSION.wait_timeout AS UNSIGNED)")
            .fetch_one(&mut self.conn)
            .await
            .map_err(fault)?;
        row.try_get_unchecked(0).map_err(fault)
    }

    /// Asks for the lock and waits for it that long, in one request: whoever asks again goes to the end of the line.
    pub(super) async fn lock(mut self, name: &str, wait: Duration) -> Result<(Self, Answer)> {
        let row = sqlx::query("SELECT CAST(GET_LOCK(?, ?) AS SIGNED), CAST(CONNECTION_ID() AS UNSIGNED)")
            .bind(name)
            .bind(whole_seconds(wait))
            .fetch_one(&mut self.conn)
            .await
            .map_err(fault)?;
        let granted: Option<i64> = row.try_get_unchecked(0).map_err(fault)?;
        let id: u64 = row.try_get_unchecked(1).map_err(fault)?;
        if id != self.id {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "a connection that keeps its session".into() },
                "a pooler or proxy before the server gives each request another session, so a named lock cannot be held",
            ));
        }
        match granted {
            Some(1) => Ok((self, Answer::Granted)),
            Some(0) => Ok((self, Answer::Taken)),
            Some(_) => Err(Error::new(ErrorKind::Protocol, "GET_LOCK gave an invalid answer")),
            None => Err(Error::outage(
                "the server ended the wait for the lock: it is out of memory, or somebody killed the query",
            )),
        }
    }

    /// Draws a fencing token under the lock, and leaves the note and the hold id. Committed when this returns.
    pub(super) async fn stamp(mut self, name: &str, key: &str, hold: &str, note: &str) -> Result<(Self, u64)> {
        let (head, rest) = head_and_rest(key);
        let done = sqlx::query(STAMP)
            .bind(name.as_bytes())
            .bind(note.as_bytes())
            .bind(head)
            .bind(rest)
            .bind(hold.as_bytes())
            .execute(&mut self.conn)
            .await
            .map_err(fault)?;
        match done.last_insert_id() {
            0 => Err(Error::new(ErrorKind::Protocol, "the server gave no fencing token")),
            token if token >= 1 << 53 => Err(Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up")),
            token => Ok((self, token)),
        }
    }

    /// Notes this word under this name in `dlock_meta`, unless one stands there. Gives the one that stands there then.
    pub(super) async fn agree(mut self, name: &str, word: &str) -> Result<(Self, String)> {
        for note in [READ_META, WRITE_META, READ_META] {
            let query = sqlx::query(note).bind(name.as_bytes());
            let query = if note == WRITE_META { query.bind(word.as_bytes()) } else { query };
            if let Some(row) = query.fetch_optional(&mut self.conn).await.map_err(fault)? {
                let found = text(&row, 0).map_err(fault)?;
                return Ok((self, found));
            }
        }
        Err(Error::new(ErrorKind::Protocol, "the server does not show a row that it has taken"))
    }

    /// Whether this session holds the lock. The error is the client's, because it tells whether the session lives on.
    pub(super) async fn holds(&mut self, name: &str) -> sqlx::Result<bool> {
        let row = sqlx::query("SELECT CAST(IS_USED_LOCK(?) AS UNSIGNED)").bind(name).fetch_one(&mut self.conn).await?;
        Ok(row.try_get_unchecked::<Option<u64>, _>(0)? == Some(self.id))
    }

    /// Which of these sessions hold their locks, and which holds are to be broken: a statement, whatever their number.
    /// It reads one row by its primary key for each hold. Names are ours, so nothing needs to be escaped.
    pub(super) async fn hold_all(&mut self, holds: impl Iterator<Item = (&str, u64)>) -> sqlx::Result<Standings> {
        let (mut asked, mut used, mut names) = (0, String::new(), String::new());
        for (name, id) in holds {
            let comma = if asked == 0 { "" } else { "," };
            // Writing into a string cannot fail.
            let _ = write!(used, "{comma}IS_USED_LOCK('{name}')<=>{id}");
            let _ = write!(names, "{comma}'{name}'");
            asked += 1;
        }
        let sql = format!(
            "SELECT '', CONCAT({used}) UNION ALL \
             SELECT hold, broken_record FROM dlock_named WHERE name IN ({names}) AND broken_hold = hold"
        );
        let mut standings = Standings { held: Vec::new(), broken: Vec::new() };
        for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut self.conn).await? {
            let (hold, told) = (text(&row, 0)?, text(&row, 1)?);
            if hold.is_empty() {
                standings.held = told.bytes().map(|held| held == b'1').collect();
            } else if let Ok(hold) = hold.parse() {
                standings.broken.push((hold, BreakRecord::from_stored(&told)));
            }
        }
        if standings.held.len() != asked {
            return Err(sqlx::Error::Protocol("the server did not answer for each hold".into()));
        }
        Ok(standings)
    }

    /// Frees the lock; false if this session did not hold it.
    pub(super) async fn unlock(mut self, name: &str) -> Result<(Self, bool)> {
        let row = sqlx::query("SELECT CAST(RELEASE_LOCK(?) AS SIGNED)")
            .bind(name)
            .fetch_one(&mut self.conn)
            .await
            .map_err(fault)?;
        let freed: Option<i64> = row.try_get_unchecked(0).map_err(fault)?;
        Ok((self, freed == Some(1)))
    }

    /// The row of the lock's holder.
    pub(super) async fn holder(mut self, name: &str) -> Result<(Self, Option<HolderRow>)> {
        let rows =
            sqlx::query(HOLDER).bind(name.as_bytes()).bind(name).fetch_all(&mut self.conn).await.map_err(fault)?;
        let Some(row) = rows.first() else { return Ok((self, None)) };
        let holder = HolderRow {
            note: text(row, 0).map_err(fault)?,
            hold: text(row, 1).map_err(fault)?.parse().ok(),
            token: row.try_get_unchecked(2).map_err(fault)?,
        };
        Ok((self, Some(holder)))
    }

    /// For the statements of other files.
    pub(super) fn conn(&mut self) -> &mut MySqlConnection {
        &mut self.conn
    }

    /// Whether another hold may use it. Not if the server may be about to end it.
    pub(super) fn is_fresh(&self, now: BootInstant) -> bool {
        let most = Duration::from_secs(self.silence / 2).min(Duration::from_secs(60));
        self.parked.is_some_and(|since| now.since(since) < most)
    }

    /// Says goodbye, so that the server does not count an aborted client.
    pub(super) async fn close(self, clock: &Clock) {
        let _ = clock.timeout_at(clock.now().after(PATIENCE), self.conn.close().map(drop)).await;
    }
}

/// A column of bytes; empty where it is NULL.
pub(super) fn text(row: &MySqlRow, column: usize) -> sqlx::Result<String> {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(column)?;
    Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
}

/// Never shorter than asked for. The server's own limit is a year.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).min(365 * 24 * 3600)
}
