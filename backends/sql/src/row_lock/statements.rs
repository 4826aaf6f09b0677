//! All statements about the records of row locks. The statement that locks a row is each server's own.
//!
//! As in the statements of the lease row, words in braces are the server's, and values are `$1`, `$2` and so on.

use super::dialect::RowDialect;
use crate::tables::row_table::ROW_KEYS;
use crate::tables::statements::{SWEPT, statement};
use crate::tables::words::Statement;

/// The table of tokens, notes and records of broken holds.
pub const ROWS: &str = "{t}rows";

/// Makes the row that is locked. Values: name.
const CREATE: &str = "INSERT INTO {row_keys} (k) VALUES ($1){unless_there}";

/// Draws a token, and writes the record of the one holder. The token is above the last one and not below the server's time, so
/// it rises even where records were lost.
///
/// It does nothing for a hold that has ended: if it comes late, the record may be that of the next holder. The server checks that
/// again after it has waited for another writer of the record.
///
/// Values: name, mode, session, transaction, hold id, note, whole key.
const STAMP_AGAIN: &str = "\
    UPDATE {rows} SET token = {draw}GREATEST(token + 1, {now}){drawn}, mode = $2, session = $3, xact = $4, hold = $5, \
        note = $6, long_key = $7 \
    WHERE k = $1 AND part = '' AND {lives}{tells}";

/// The hold id in these statements. It has a column, because MySQL checks a condition without a column before it waits
/// for the row.
const PER_ROW: &str = "CONCAT($5, LEFT(k, 0))";

/// Like [`STAMP_AGAIN`], where there is no record. The server checks that the hold lives before it waits for another
/// writer. So this changes no existing record.
///
/// Values: as of [`STAMP_AGAIN`].
const STAMP: &str = "\
    INSERT INTO {rows} (k, part, token, mode, session, xact, hold, note, long_key) \
    SELECT $1, '', {draw}GREATEST({now}, {swept}){drawn}, $2, $3, $4, $5, $6, $7{from_nothing} WHERE {lives}{unless_there}{tells}";

/// Draws a token for a reader, beside others. The readers keep the row locked, so an earlier exclusive holder has
/// ended, even if its session lives. Its record is replaced, since the tokens of readers are in the same column. A
/// reader that has ended already draws no token.
///
/// Values: name, whole key, session, transaction, hold id.
const DRAW_AGAIN: &str = "\
    UPDATE {rows} SET token = {draw}GREATEST(token + 1, {now}){drawn}, hold = '', long_key = $2 \
    WHERE k = $1 AND part = '' AND {lives}{tells}";

/// Like [`DRAW_AGAIN`], where there is no record.
///
/// Values: as of [`DRAW_AGAIN`].
const DRAW: &str = "\
    INSERT INTO {rows} (k, part, token, mode, session, xact, hold, note, long_key) \
    SELECT $1, '', {draw}GREATEST({now}, {swept}){drawn}, 0, 0, 0, '', '', $2{from_nothing} WHERE {lives}{unless_there}{tells}";

/// The record of one of several readers.
///
/// Values: name, hold id, token, mode, session, transaction, note, whole key.
const STAMP_READER: &str = "\
    INSERT INTO {rows} (k, part, token, mode, session, xact, hold, note, long_key) \
    VALUES ($1, $2, $3, $4, $5, $6, $2, $7, $8){unless_there}";

/// Deletes the record of a reader.
///
/// Values: name, hold id.
const FORGET_READER: &str = "DELETE FROM {rows} WHERE k = $1 AND part = $2";

/// The holders of a lock, the first one first.
///
/// Values: name.
const LOOK: &str =
    "SELECT note, hold, token, mode, session FROM {rows} WHERE k = $1 AND hold <> '' AND {is_held} ORDER BY token";

/// Records that the call of a hold waits for another lock. The record counts for some time.
///
/// Values: name of the wait (see `circle`), name of the other lock.
const WAIT: &str = "\
    INSERT INTO {rows} (k, part, token, mode, session, xact, hold, note, long_key) \
    VALUES ($1, '', {now}, 0, 0, 0, '', '', $2) {on_conflict} token = {now}, long_key = $2";

/// Deletes the record of a wait.
///
/// Values: name of the wait.
const DELETE_WAIT: &str = "DELETE FROM {rows} WHERE k = $1 AND part = ''";

/// Ends a wait for an account that may not delete. A sweep of another account deletes the row later.
///
/// Values: name of the wait.
const END_WAIT: &str = "UPDATE {rows} SET long_key = '' WHERE k = $1 AND part = ''";

/// The lock for which the call of a hold waits, if the record is new enough.
///
/// Values: name of the wait, the longest age of its record.
const WAITS: &str = "SELECT long_key FROM {rows} WHERE k = $1 AND part = '' AND long_key <> '' AND token > {now} - $2";

/// One page of a listing. Names of free locks count for the limit too, so that the cost has a bound.
///
/// Values: after, start, end, limit.
const LIST: &str = "\
    SELECT k, MAX(long_key), {any}({is_held}) FROM {rows} WHERE k > $1 AND k >= $2 AND k < $3 GROUP BY k ORDER BY k LIMIT $4";

/// Leaves the record of a break, if the hold still holds.
///
/// Values: name, hold id, record.
const LEAVE_RECORD: &str = "\
    UPDATE {rows} SET broken_hold = hold, broken_record = $3 WHERE k = $1 AND hold = $2 AND {is_held}";

/// Takes back the record of a break.
///
/// Values: name, hold id.
const TAKE_BACK: &str = "UPDATE {rows} SET broken_hold = NULL WHERE k = $1 AND hold = $2 AND broken_hold = hold";

/// The record of a broken hold.
///
/// Values: name, hold id.
const RECORD: &str = "SELECT broken_record FROM {rows} WHERE k = $1 AND broken_hold = $2";

/// Takes the turn to sweep row locks, so that one process at a time sweeps.
///
/// Values: the time in which no other process sweeps.
const TAKE_SWEEP: &str = "UPDATE {meta} SET number = {now} + $1 WHERE name = 'sweep_rows' AND number <= {now}";

/// A page of the table in the order of the names. For each record it also says whether the last token was drawn longer
/// ago than `$1`: a token is not below the time at which it was drawn.
///
/// Values: that time, the last name and part of the page before.
const SWEEP_PAGE: &str = "\
    SELECT k, part, token, token < {now} - $1 FROM {rows} WHERE k > $2 OR k = $2 AND part > $3 ORDER BY k, part LIMIT {page}";

/// Deletes a record that was not used since the look at it, and whose hold has ended.
///
/// Values: name, part, token.
const SWEEP: &str = "DELETE FROM {rows} WHERE k = $1 AND part = $2 AND token = $3 AND NOT ({is_held})";

/// A page of the locks, each with a flag: it has no record.
///
/// Values: the last name of the page before.
const KEY_PAGE: &str = "\
    SELECT k, NOT EXISTS (SELECT 1 FROM {rows} recorded WHERE recorded.k = made.k) FROM {row_keys} made \
    WHERE k > $1 ORDER BY k LIMIT {page}";

/// Deletes the row of a lock, and waits for sessions that keep it locked. The next caller, or one that waits already,
/// inserts the row again: the server reports that it is missing.
///
/// Ask before whether the lock has a record. If it has one, a holder may keep the row locked. The question must not be
/// a part of this statement. MySQL would lock the record's place while the statement waits for the holder, and the
/// holder would wait there with its record. Neither could go on.
///
/// Values: name.
const SWEEP_KEY: &str = "DELETE FROM {row_keys} WHERE k = $1";

/// The statements of one store.
#[derive(Debug)]
pub(super) struct RowStatements {
    pub(super) create: Statement,
    pub(super) stamp: Statement,
    pub(super) stamp_again: Statement,
    pub(super) draw: Statement,
    pub(super) draw_again: Statement,
    pub(super) stamp_reader: Statement,
    pub(super) forget_reader: Statement,
    pub(super) look: Statement,
    pub(super) wait: Statement,
    pub(super) delete_wait: Statement,
    pub(super) end_wait: Statement,
    pub(super) waits: Statement,
    pub(super) list: Statement,
    pub(super) leave_record: Statement,
    pub(super) take_back: Statement,
    pub(super) record: Statement,
    pub(super) take_sweep: Statement,
    pub(super) sweep_page: Statement,
    pub(super) sweep: Statement,
    pub(super) key_page: Statement,
    pub(super) sweep_key: Statement,
}

impl RowStatements {
    pub(super) fn new<D: RowDialect>(dialect: &D) -> Self {
        let (words, row) = (dialect.words(), dialect.row_words());
        let of_hold = |text: &str, [session, xact, hold]: [&str; 3]| {
            text.replace("{session}", session).replace("{xact}", xact).replace("{hold}", hold)
        };
        let made_for = |text: &str, its_hold: [&str; 3]| {
            let text = text
                .replace("{swept}", SWEPT)
                .replace("{on_conflict}", row.on_conflict)
                .replace("{any}", row.any)
                .replace("{from_nothing}", row.from_nothing)
                .replace("{is_held}", &of_hold(row.is_held, ["session", "xact", "hold"]))
                .replace("{lives}", &of_hold(row.lives, its_hold))
                .replace("{rows}", &format!("{{s}}{ROWS}"))
                .replace("{row_keys}", &format!("{{s}}{ROW_KEYS}"));
            statement(&text, words)
        };
        let made = |text: &str| made_for(text, [""; 3]);
        Self {
            create: made(CREATE),
            stamp: made_for(STAMP, ["$3", "$4", "$5"]),
            stamp_again: made_for(STAMP_AGAIN, ["$3", "$4", PER_ROW]),
            draw: made_for(DRAW, ["$3", "$4", "$5"]),
            draw_again: made_for(DRAW_AGAIN, ["$3", "$4", PER_ROW]),
            stamp_reader: made(STAMP_READER),
            forget_reader: made(FORGET_READER),
            look: made(LOOK),
            wait: made(WAIT),
            delete_wait: made(DELETE_WAIT),
            end_wait: made(END_WAIT),
            waits: made(WAITS),
            list: made(LIST),
            leave_record: made(LEAVE_RECORD),
            take_back: made(TAKE_BACK),
            record: made(RECORD),
            take_sweep: made(TAKE_SWEEP),
            sweep_page: made(SWEEP_PAGE),
            sweep: made(SWEEP),
            key_page: made(KEY_PAGE),
            sweep_key: made(SWEEP_KEY),
        }
    }
}
