//! All statements about the table of named locks.
//!
//! As in the statements of the lease row, words in braces are the server's, and values are `$1`, `$2` and so on.

use dlock_contract::Mode;

use super::dialect::NamedDialect;
use super::holder_statements::HolderStatements;
use super::read_write::{READ_WRITE, ReadWrite, is_held_in_any_mode};
use super::sequence::Sequence;
use crate::tables::statements::{SWEPT, statement};
use crate::tables::words::Statement;

/// The table of tokens, notes and requests to break a hold.
pub const NAMED: &str = "{t}named";

/// Draws a token under the lock in the key's row, and leaves the note and the hold id. The token is above the last one and not
/// below the server's time, so it rises even where rows were lost. The record of another hold stays for its holder; an earlier
/// break of this very hold is over. It changes nothing if the key has no row.
///
/// Values: name, lock, session, note, hold id, whole key.
const STAMP: &str = "\
    UPDATE {named} SET token = {draw}GREATEST(token + 1, {now}){drawn}, session = $3, note = $4, hold = $5, \
        broken_hold = NULLIF(broken_hold, $5) \
    WHERE k = $1{if_granted}{tells}";

/// The same, also for a key without a row. Each row needs this once. It takes the server about twice as long, and the message is
/// twice as long too, so the update comes first.
///
/// Values: those of [`STAMP`].
const STAMP_NEW: &str = "\
    INSERT INTO {named} (k, lock_id, token, session, note, hold, long_key) VALUES ( \
        $1, $2, {draw}GREATEST({now}, {swept}){drawn}, $3, $4, $5, $6) \
    {on_conflict} \
        token = {draw}GREATEST({t}named.token + 1, {now}){drawn}, session = $3, note = $4, hold = $5, \
        broken_hold = NULLIF({t}named.broken_hold, $5){tells}";

/// One page of a listing. Rows of free locks count for the limit too, so that the cost has a bound.
///
/// Values: after, start, end, limit.
const LIST: &str = "\
    SELECT k, long_key, {is_held_in_any_mode} FROM {named} WHERE k > $1 AND k >= $2 AND k < $3 ORDER BY k LIMIT $4";

/// Takes the turn to sweep named locks, so that one process at a time sweeps. Lease rows have another turn.
///
/// Values: the time in which no other process sweeps.
const TAKE_SWEEP: &str = "UPDATE {meta} SET number = {now} + $1 WHERE name = 'sweep_named' AND number <= {now}";

/// A page of the table in the order of the primary key. For each row it also says whether the last token was drawn
/// longer ago than `$1`.
///
/// Values: that time, the last name of the page before.
const SWEEP_PAGE: &str = "SELECT k, token, {used} < {now} - $1 FROM {named} WHERE k > $2 ORDER BY k LIMIT {page}";

/// Deletes a row that was not used since the look at it, and whose lock nobody holds.
///
/// Values: name, token.
const SWEEP: &str = "DELETE FROM {named} WHERE k = $1 AND token = $2 AND NOT ({is_held_in_any_mode})";

/// The statements of one store.
#[derive(Debug)]
pub(super) struct NamedStatements {
    /// Draws a token in the key's row, if there is one. `None` if a sequence draws the tokens.
    pub(super) stamp: Option<Statement>,
    /// `stamp`, in one message with the request for the lock, if the server takes both in one message.
    pub(super) stamp_if_granted: Option<Statement>,
    stamp_new: Statement,
    /// The statements for tokens from a sequence.
    pub(super) sequence: Option<Sequence>,
    holders: HolderStatements,
    /// The statements of readers and writers, if the server has them.
    pub(super) read_write: Option<ReadWrite>,
    pub(super) list: Statement,
    pub(super) take_sweep: Statement,
    pub(super) sweep_page: Statement,
    pub(super) sweep: Statement,
}

impl NamedStatements {
    pub(super) fn new<D: NamedDialect>(dialect: &D) -> Self {
        let (words, named) = (dialect.words(), dialect.named_words());
        let is_held_in_any_mode = named.read_write.as_ref().map(is_held_in_any_mode);
        let made = |text: &str| {
            let text = text
                .replace("{is_held_in_any_mode}", is_held_in_any_mode.as_deref().unwrap_or(named.is_held))
                .replace("{is_held_alone}", named.is_held)
                .replace("{swept}", SWEPT)
                // A token that a row draws is not below the time at which it was drawn.
                .replace("{used}", if named.sequence.is_some() { "used_us" } else { "token" })
                .replace("{on_conflict}", named.on_conflict)
                .replace("{read_write}", &format!("{{s}}{READ_WRITE}"))
                .replace("{named}", &format!("{{s}}{NAMED}"));
            statement(&text, words)
        };
        let stamp = |if_granted| made(&STAMP.replace("{if_granted}", if_granted));
        let read_write = named.read_write.as_ref().zip(named.sequence.as_ref());
        Self {
            stamp: named.sequence.is_none().then(|| stamp("")),
            stamp_if_granted: named.if_granted.map(stamp),
            stamp_new: made(STAMP_NEW),
            sequence: named.sequence.as_ref().map(|words| Sequence::new(words, &made)),
            holders: HolderStatements::new("{named}", named.is_held, &made),
            read_write: read_write.map(|(words, sequence)| ReadWrite::new(words, sequence, &made)),
            list: made(LIST),
            take_sweep: made(TAKE_SWEEP),
            sweep_page: made(SWEEP_PAGE),
            sweep: made(SWEEP),
        }
    }

    /// Draws a token under a lock that was granted in this mode, also for a key without a row.
    pub(super) fn stamp_new(&self, mode: Mode) -> &Statement {
        let alone = self.sequence.as_ref().map_or(&self.stamp_new, |sequence| &sequence.stamp);
        self.together(mode).map_or(alone, |read_write| read_write.stamp(mode))
    }

    /// Asks for the lock and draws the token, if one statement can do it.
    pub(super) fn take(&self, mode: Mode) -> Option<&Statement> {
        let sequence = self.sequence.as_ref()?;
        Some(self.together(mode).map_or(&sequence.take, |read_write| read_write.take(mode)))
    }

    /// The statements about the holders of this mode's family.
    pub(super) fn holders(&self, mode: Mode) -> &HolderStatements {
        self.together(mode).map_or(&self.holders, |read_write| &read_write.holders)
    }

    /// The statements about the holders of each family.
    pub(super) fn all_holders(&self) -> impl Iterator<Item = &HolderStatements> {
        std::iter::once(&self.holders).chain(self.read_write.as_ref().map(|read_write| &read_write.holders))
    }

    fn together(&self, mode: Mode) -> Option<&ReadWrite> {
        self.read_write.as_ref().filter(|_| mode != Mode::Exclusive)
    }
}
