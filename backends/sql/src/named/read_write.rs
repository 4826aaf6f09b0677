//! The statements of read and write locks, for a server with locks that several sessions hold together.
//!
//! The token of a key is in its row of [`NAMED`](super::NAMED), whatever the lock's mode, so that it rises over all
//! modes. If the session in this row is zero, the last grant was not exclusive. Readers and the writer have a row each
//! in [`READ_WRITE`]: one for each key and session, since a lock is never asked for twice on one session. A release
//! leaves the row, and a row counts only while its session holds the lock in the row's mode.

use dlock_contract::Mode;

use super::holder_statements::HolderStatements;
use super::sequence::with_words;
use super::words::{ReadWriteWords, SequenceWords};
use crate::tables::words::Statement;

/// The table of readers and writers.
pub const READ_WRITE: &str = "{t}read_write";

/// Asks for the lock, draws a token under it, and leaves the note and the hold id, in one statement.
///
/// Values: as of the exclusive one.
const TAKE: &str = "\
    WITH asked AS MATERIALIZED (SELECT {try_lock} AS is_granted, {who} AS session), \
    drawn AS ( \
        INSERT INTO {named} (k, lock_id, token, session, note, hold, long_key, used_us) \
        SELECT $1, $2, {next_token}, 0, '', '', $6, {now} FROM asked WHERE is_granted \
        {on_conflict} token = excluded.token, session = 0, note = '', hold = '', used_us = excluded.used_us \
        RETURNING token), \
    stamped AS ( \
        INSERT INTO {read_write} (k, session, lock_id, is_write, token, note, hold, used_us) \
        SELECT $1, $3, $2, {is_write}, token, $4, $5, {now} FROM drawn \
        ON CONFLICT (k, session) DO UPDATE SET \
            lock_id = excluded.lock_id, is_write = excluded.is_write, token = excluded.token, note = excluded.note, \
            hold = excluded.hold, used_us = excluded.used_us, broken_hold = NULLIF({t}read_write.broken_hold, excluded.hold)) \
    SELECT {tells} FROM asked";

/// Whether the row of a writer or a reader is that of a holder. A writer is alone, so nobody has drawn a token since.
const IS_HELD: &str = "\
    ({is_held_there} AND (NOT is_write OR token = (SELECT n.token FROM {named} n WHERE n.k = {t}read_write.k)))";

/// Whether readers or a writer hold a lock, in a statement about the rows of all locks.
const IS_HELD_TOO: &str = "\
    (CASE WHEN session <> 0 THEN {is_held_alone} ELSE \
        EXISTS (SELECT FROM {read_write} WHERE k = {t}named.k AND {is_held_together}) END)";

/// Whether an exclusive hold has the lock. The key's row has the family of the last grant. The statement looks at the
/// holders only if that family is the exclusive one.
///
/// Values: name.
const EXCLUSIVE: &str = "\
    SELECT k FROM {named} WHERE k = $1 AND CASE WHEN session <> 0 THEN {is_held_alone} ELSE false END";

/// Like [`EXCLUSIVE`], for readers and writers.
const READ_OR_WRITTEN: &str = "\
    SELECT k FROM {read_write} WHERE k = $1 AND \
        CASE WHEN (SELECT session FROM {named} WHERE k = $1) = 0 THEN {is_held_together} ELSE false END LIMIT 1";

/// Deletes rows of sessions that hold their locks no longer. A row that is used again meanwhile has a new time.
///
/// Values: for how long no token was drawn there.
const SWEEP: &str = "\
    DELETE FROM {read_write} WHERE used_us < {now} - $1 AND (k, session) IN ( \
        SELECT k, session FROM {read_write} WHERE used_us < {now} - $1 AND NOT {is_held_together} LIMIT {page})";

/// The statements of readers and writers.
#[derive(Debug)]
pub(super) struct ReadWrite {
    take: [Statement; 2],
    stamp: [Statement; 2],
    exclusive: Statement,
    read_or_written: Statement,
    pub(super) holders: HolderStatements,
    pub(super) sweep: Statement,
}

impl ReadWrite {
    /// `made` puts the other words of the server in.
    pub(super) fn new(words: &ReadWriteWords, sequence: &SequenceWords, made: &impl Fn(&str) -> Statement) -> Self {
        let modes = [(words.try_read, "false"), (sequence.try_lock, "true")];
        let is_held = is_held(words);
        let takes = |text: &str| made(&with_words(text, sequence));
        Self {
            take: modes.map(|(try_lock, is_write)| {
                let tells = "is_granted, (SELECT token FROM drawn WHERE token >= {now}), session";
                takes(&TAKE.replace("{try_lock}", try_lock).replace("{is_write}", is_write).replace("{tells}", tells))
            }),
            stamp: modes.map(|(_, is_write)| {
                let tells = "(SELECT token FROM drawn WHERE token >= {now})";
                takes(&TAKE.replace("{try_lock}", "true").replace("{is_write}", is_write).replace("{tells}", tells))
            }),
            exclusive: made(EXCLUSIVE),
            read_or_written: made(&READ_OR_WRITTEN.replace("{is_held_together}", &is_held)),
            holders: HolderStatements::new("{read_write}", &is_held, made),
            sweep: made(&SWEEP.replace("{is_held_together}", &is_held)),
        }
    }

    pub(super) fn take(&self, mode: Mode) -> &Statement {
        &self.take[usize::from(mode == Mode::Write)]
    }

    pub(super) fn stamp(&self, mode: Mode) -> &Statement {
        &self.stamp[usize::from(mode == Mode::Write)]
    }

    /// Finds a row if the lock is held in a mode of another family than this one.
    pub(super) fn held_otherwise(&self, mode: Mode) -> &Statement {
        if mode == Mode::Exclusive { &self.read_or_written } else { &self.exclusive }
    }
}

/// Whether the lock of a row of [`NAMED`](super::NAMED) is held, in whatever mode.
pub(super) fn is_held_in_any_mode(words: &ReadWriteWords) -> String {
    IS_HELD_TOO.replace("{is_held_together}", &is_held(words))
}

fn is_held(words: &ReadWriteWords) -> String {
    IS_HELD.replace("{is_held_there}", words.is_held)
}
