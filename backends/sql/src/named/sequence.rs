//! The statements of a server whose sequence draws the tokens.
//!
//! The rows are in tables that the server empties when it crashes, so a grant waits for no disk. All locks end in a
//! crash too. A token of the sequence may be given before the server has noted it on the disk: it notes some values
//! ahead, and a session that draws one of them does not wait for that. So a crash may take values back. A failover, an
//! older backup and a sequence that was made anew take back more.
//!
//! Therefore a row of the same table marks the sequence that the tokens come from. Each session looks for the mark before it
//! draws. If there is none, the sequence is first [raised](RAISE) above all values that were given.
//!
//! No token is below the server's clock, as of rows that draw tokens. So they rise also when a namespace comes from another
//! store or way. A sequence that is behind is raised a little above the clock. That is one write to the disk for each second
//! in which locks are taken.

use super::words::SequenceWords;
use crate::tables::words::Statement;

/// The most values that were given but are not on the disk when the server crashes: 32 for each session that was about
/// to write, and a server has fewer than 2^18 sessions.
const LOST: &str = "16777216";

/// How far above the clock it is raised, in microseconds. Others draw fewer values while one session raises it.
const AHEAD: &str = "1048576";

/// Asks for the lock, draws a token under it, and leaves the note and the hold id, in one statement. A token that is
/// behind the clock is not returned. A row that was changed since the statement began is read anew. The record of
/// another hold stays for its holder; an earlier break of this very hold is over.
///
/// Values: name, lock, session, note, hold id, whole key, number of the lock.
const TAKE: &str = "\
    WITH asked AS MATERIALIZED (SELECT {try_lock} AS is_granted, {who} AS session), \
    stamped AS ( \
        INSERT INTO {named} (k, lock_id, token, session, note, hold, long_key, used_us) \
        SELECT $1, $2, {next_token}, $3, $4, $5, $6, {now} FROM asked WHERE is_granted \
        {on_conflict} \
            token = excluded.token, session = $3, note = $4, hold = $5, used_us = excluded.used_us, \
            broken_hold = NULLIF({t}named.broken_hold, $5) \
        RETURNING token) \
    SELECT {tells} FROM asked";

/// Raises the sequence above the server's clock and all values that were ever given, if it has no mark. If it has one, only
/// on demand, and only if it is behind the clock. The mark's row keeps others from raising it at the same time.
///
/// Values: 1 to look whether it is behind although it has its mark.
const RAISE: &str = "\
    WITH marked AS ( \
        INSERT INTO {named} (k, lock_id, token, session, note, hold, used_us) \
        SELECT '', '', 0, {sequence_id}, '', '', {now} \
        WHERE $1 = 1 OR NOT EXISTS (SELECT FROM {named} WHERE k = '' AND session = {sequence_id}) \
        {on_conflict} session = excluded.session, used_us = excluded.used_us \
            WHERE $1 = 1 OR {t}named.session <> excluded.session \
        RETURNING session) \
    SELECT setval('{sequence}', GREATEST(token, {now}) + CASE $1 WHEN 1 THEN {ahead} ELSE {lost} END) \
    FROM (SELECT {next_token} AS token FROM marked OFFSET 0) drawn WHERE $1 = 0 OR token < {now}";

/// The statements about exclusive holds, and about the sequence itself.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) take: Statement,
    /// Draws the token of a lock that was granted before.
    pub(super) stamp: Statement,
    /// Frees the lock, and takes it for the next caller if nobody else waits. The first answer is null if the lock was
    /// not held.
    pub(super) exchange: Statement,
    pub(super) raise: Statement,
}

impl Sequence {
    /// `made` puts the other words of the server in.
    pub(super) fn new(words: &SequenceWords, made: &impl Fn(&str) -> Statement) -> Self {
        let takes = |try_lock: &str, tells: &str| {
            made(&with_words(&TAKE.replace("{try_lock}", try_lock).replace("{tells}", tells), words))
        };
        let all = "is_granted, (SELECT token FROM stamped WHERE token >= {now}), session";
        Self {
            take: takes(words.try_lock, all),
            stamp: takes("true", "(SELECT token FROM stamped WHERE token >= {now})"),
            exchange: takes(&format!("CASE WHEN {} THEN {} END", words.unlock, words.try_lock), all),
            raise: made(&with_words(RAISE, words)),
        }
    }
}

/// Fills in the words of the sequence.
pub(super) fn with_words(text: &str, words: &SequenceWords) -> String {
    text.replace("{who}", words.who)
        .replace("{next_token}", "nextval('{sequence}')")
        .replace("{sequence_id}", "'{sequence}'::regclass::oid::bigint")
        .replace("{sequence}", &format!("{{s}}{}", words.name))
        .replace("{lost}", LOST)
        .replace("{ahead}", AHEAD)
}
