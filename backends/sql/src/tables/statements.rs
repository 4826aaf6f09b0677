//! All statements of the lease row, on one page.
//!
//! The words in braces are the server's; values are `$1`, `$2` and so on. Where assignments run from left to right
//! (MySQL), each one reads only columns that none before it has changed.
//!
//! `{now}` is the server's time at the start of the statement, in microseconds since 1970. It must be one value in all of
//! the statement. The caller counts its lease from when it sent the request. So the caller's lease never ends after the
//! lease in the table.

use crate::tables::words::Statement;
use crate::tables::words::Words;

/// The table of the locks.
pub const LOCKS: &str = "{t}locks";
/// The table of the records that broken holds leave.
pub const BREAKS: &str = "{t}breaks";
/// The table that says in which way each namespace is locked.
pub const META: &str = "{t}meta";

/// Wins if the lock is free, its lease has ended, or it is this owner's already: then it keeps its token. A new token is
/// above the last one and not below the server's time, so it rises even where rows were lost.
///
/// Values: name, owner, ttl, note, hold id.
pub(crate) const ACQUIRE: &str = "\
    UPDATE {locks} SET \
        token = {draw}CASE WHEN owner = $2 THEN token ELSE GREATEST(token + 1, {now}) END{drawn}, \
        owner = $2, expires_us = {now} + $3, note = $4, hold = $5 \
    WHERE k = $1 AND (owner IS NULL OR owner = $2 OR expires_us <= {now}){tells}";

/// Wins if the lock never had a row.
///
/// Values: name, owner, ttl, note, hold id, whole key.
const CREATE: &str = "\
    INSERT INTO {locks} (k, owner, token, expires_us, note, hold, long_key) VALUES ( \
        $1, $2, {draw}GREATEST({now}, {swept}){drawn}, {now} + $3, $4, $5, $6){unless_there}{tells}";

/// Makes a row that nobody holds.
///
/// Values: name, whole key.
const MAKE_FREE: &str = "\
    INSERT INTO {locks} (k, token, expires_us, note, hold, long_key) \
    VALUES ($1, GREATEST({now}, {swept}), {now}, '', '', $2){unless_there}";

/// Why a lock was not granted: lease left, note, whether somebody has it.
///
/// Values: name.
const REFUSED: &str = "SELECT expires_us - {now}, note, owner IS NOT NULL FROM {locks} WHERE k = $1";

/// Wins if the lock is free and the run of this boundary was not started. A run that may be run again counts as not
/// started, and so does a start of this very owner, which has not begun it if it still asks.
///
/// Values: name, owner, ttl, note, hold id, period, offset, whether it may be run again.
pub(crate) const START: &str = "\
    UPDATE {locks} SET \
        token = {draw}CASE WHEN owner = $2 THEN token ELSE GREATEST(token + 1, {now}) END{drawn}, \
        run_started = CASE WHEN owner = $2 AND run_owner = $2 THEN run_started ELSE {now} END, \
        run_boundary = GREATEST(COALESCE(run_boundary, 0), {boundary}), run_open = 1, run_owner = $2, \
        owner = $2, expires_us = {now} + $3, note = $4, hold = $5 \
    WHERE k = $1 AND (owner = $2 OR (owner IS NULL OR expires_us <= {now}) AND ( \
        run_boundary IS NULL OR run_boundary < {boundary} OR run_open = 1 AND ($8 = 1 OR run_owner = $2))){tells}";

/// The first start under a key that never had a row.
///
/// Values: name, owner, ttl, note, hold id, period, offset, whole key.
const CREATE_START: &str = "\
    INSERT INTO {locks} \
        (k, owner, token, expires_us, note, hold, run_boundary, run_open, run_owner, run_started, long_key) VALUES ( \
        $1, $2, {draw}GREATEST({now}, {swept}){drawn}, {now} + $3, $4, $5, {boundary}, 1, $2, {now}, $8){unless_there}{tells}";

/// Why a run was not started: lease left, note, whether somebody has the lock, whether this boundary was started, whether
/// it may be run again.
///
/// Values: name, owner, whether it may be run again, period, offset.
const REFUSED_START: &str = "\
    SELECT expires_us - {now}, note, owner IS NOT NULL, run_boundary >= {boundary}, \
        run_open = 1 AND ($3 = 1 OR run_owner = $2) \
    FROM {locks} WHERE k = $1";

/// Values: name, owner.
pub(crate) const RELEASE: &str = "UPDATE {locks} SET owner = NULL, expires_us = {now} WHERE k = $1 AND owner = $2";

/// Passes a held lock on to the next owner, which waits in the holder's process.
///
/// Values: name, owner, next owner, ttl, note, hold id.
const PASS: &str = "\
    UPDATE {locks} SET token = {draw}GREATEST(token + 1, {now}){drawn}, owner = $3, expires_us = {now} + $4, note = $5, \
        hold = $6 WHERE k = $1 AND owner = $2{tells}";

/// Ends a hold, and records how its run went. If the time to keep it is zero, the lock is free. A kept lock has an
/// empty owner, which is nobody.
///
/// Values: name, owner, how long to keep it, for how long it ran in nanoseconds if it was a success, whether it has a
/// period.
pub(crate) const END: &str = "\
    UPDATE {locks} SET \
        good_started = CASE WHEN $4 IS NULL THEN good_started WHEN $5 = 1 THEN run_started \
            ELSE {now} - $4 {div} 1000 END, \
        good_took = COALESCE($4, good_took), good_note = CASE WHEN $4 IS NULL THEN good_note ELSE note END, \
        run_open = CASE WHEN $5 = 1 THEN 0 ELSE run_open END, \
        hold = '', owner = CASE WHEN $3 = 0 THEN NULL ELSE {nobody} END, expires_us = {now} + $3 \
    WHERE k = $1 AND owner = $2";

/// Frees a lock that an owner may have won, and gives its period back. Nothing ran, so its boundary is due again, but
/// no earlier one is. With `rerun` no period is given back: the start may be run again anyway, and may be another
/// owner's.
///
/// Values: name, owner, whether to give the period back.
pub(crate) const ABANDON: &str = "\
    UPDATE {locks} SET \
        run_boundary = CASE WHEN $3 = 1 AND run_open = 1 AND run_owner = $2 THEN run_boundary - 1 ELSE run_boundary END, \
        run_open = CASE WHEN $3 = 1 AND run_owner = $2 THEN 0 ELSE run_open END, \
        expires_us = CASE WHEN owner = $2 THEN {now} ELSE expires_us END, \
        owner = CASE WHEN owner = $2 THEN NULL ELSE owner END \
    WHERE k = $1 AND (owner = $2 OR $3 = 1 AND run_open = 1 AND run_owner = $2)";

/// Prolongs holds. An owner belongs to one claim and a claim to one key, so only these pairs of name and owner match.
///
/// Values: ttl, names, owners.
pub(crate) const RENEW: &str = "\
    UPDATE {locks}{by_name} SET expires_us = {now} + $1 WHERE k IN ({names}) AND owner IN ({owners}) AND expires_us > {now}";

/// Which of these holds are still held, if not all were prolonged.
///
/// Values: names, owners.
const RENEWED: &str = "\
    SELECT owner FROM {locks}{by_name} WHERE k IN ({names}) AND owner IN ({owners}) AND expires_us > {now}";

/// Like [`RENEWED`], without the rows that somebody keeps locked.
///
/// Values: names, owners.
const UNLOCKED: &str = "\
    SELECT owner FROM {locks}{by_name} WHERE k IN ({names}) AND owner IN ({owners}) AND expires_us > {now} \
    FOR UPDATE SKIP LOCKED";

/// Lease left, token, note, hold id.
///
/// Values: name.
const LOOK: &str = "\
    SELECT expires_us - {now}, token, note, hold FROM {locks} \
    WHERE k = $1 AND owner IS NOT NULL AND expires_us > {now}";

/// One page of a listing. Rows of free locks count for the limit too, so that the cost has a bound.
///
/// Values: after, start, end, limit.
const LIST: &str = "\
    SELECT k, long_key, owner IS NOT NULL AND expires_us > {now} FROM {locks} \
    WHERE k > $1 AND k >= $2 AND k < $3 ORDER BY k LIMIT $4";

/// Leaves a record for a hold that will be broken, if it holds the lock.
///
/// Values: name, hold id, record, the shortest time to keep it.
const LEAVE_RECORD: &str = "\
    INSERT INTO {breaks} (hold, record, until_us) SELECT hold, $3, GREATEST(expires_us, {now} + $4) FROM {locks} \
    WHERE k = $1 AND hold = $2 AND owner IS NOT NULL AND expires_us > {now}{unless_there}";

/// Breaks a hold. Values: name, hold id.
pub(crate) const BREAK: &str = "\
    UPDATE {locks} SET owner = NULL, expires_us = {now} \
    WHERE k = $1 AND hold = $2 AND owner IS NOT NULL AND expires_us > {now}";

/// Takes back the record of a break. Values: hold id.
const TAKE_BACK: &str = "UPDATE {breaks} SET until_us = 0 WHERE hold = $1";

/// The record of a broken hold. Values: hold id.
const RECORD: &str = "SELECT record FROM {breaks} WHERE hold = $1 AND until_us > {now}";

/// Values: name.
const LAST_SUCCESS: &str =
    "SELECT good_started, good_took, good_note FROM {locks} WHERE k = $1 AND good_started IS NOT NULL";

/// Values: name.
const READ_META: &str = "SELECT word FROM {meta} WHERE name = $1";

/// Values: name, word.
const WRITE_META: &str = "INSERT INTO {meta} (name, word, number) VALUES ($1, $2, 0){unless_there}";

/// Takes the turn to sweep: one process at a time sweeps. Values: the time in which no other process sweeps.
const TAKE_SWEEP: &str = "UPDATE {meta} SET number = {now} + $1 WHERE name = 'sweep' AND number <= {now}";

/// A row that nobody has used for this long: a release sets the end of the lease to its own time.
///
/// Values: that time, and the longer one for keys with runs.
const UNUSED: &str =
    "expires_us < {now} - $1 AND (run_boundary IS NULL AND good_started IS NULL OR expires_us < {now} - $2)";

/// The oldest rows first, by the index on the day. Rows of the last day may be too young, and rows with runs stay longer.
///
/// Values: those of [`UNUSED`], the last day and name of the page before.
pub(crate) const SWEEP_PAGE: &str = "\
    SELECT k, token, {unused}, expires_day FROM {locks} WHERE expires_day <= ({now} - $1) {div} 86400000000 \
        AND expires_day >= $3 AND (expires_day > $3 OR k > $4) ORDER BY expires_day, k LIMIT {page}";

/// Values: a token.
const NOTE_SWEPT: &str = "UPDATE {meta} SET number = GREATEST(number, $1) WHERE name = 'swept'";

/// Deletes rows of a page. It checks them again, because a row may have been taken meanwhile.
///
/// Values: those of [`UNUSED`], names.
const SWEEP: &str = "DELETE FROM {locks} WHERE k IN ({names}) AND {unused}";

const SWEEP_BREAKS: &str = "DELETE FROM {breaks} WHERE until_us < {now}";

/// The most rows on one page of a sweep.
pub(crate) const PAGE_ROWS: usize = 1000;

/// The boundary that is nearest to now.
pub(crate) const BOUNDARY: &str = "(({now} - {offset} + {period} {div} 2) {div} {period} * {period} + {offset})";

/// A number above the tokens of all rows that were swept.
pub(crate) const SWEPT: &str = "COALESCE((SELECT number + 1 FROM {meta} WHERE name = 'swept'), 0)";

/// How many holds one renewal prolongs. Few sizes, so that the server keeps few prepared statements.
pub(crate) const BATCHES: [usize; 3] = [1, 16, 128];

/// The statements of one store.
#[derive(Debug)]
pub(crate) struct LeaseStatements {
    pub(crate) acquire: Statement,
    pub(crate) create: Statement,
    pub(crate) refused: Statement,
    pub(crate) start: Statement,
    pub(crate) create_start: Statement,
    pub(crate) refused_start: Statement,
    pub(crate) release: Statement,
    pub(crate) pass: Statement,
    pub(crate) end: Statement,
    pub(crate) abandon: Statement,
    pub(crate) renew: [(usize, Statement); 3],
    pub(crate) renewed: [(usize, Statement); 3],
    pub(crate) unlocked: [(usize, Statement); 3],
    pub(crate) look: Statement,
    pub(crate) list: Statement,
    pub(crate) leave_record: Statement,
    pub(crate) break_hold: Statement,
    pub(crate) take_back: Statement,
    pub(crate) record: Statement,
    pub(crate) last_success: Statement,
    pub(crate) read_meta: Statement,
    pub(crate) write_meta: Statement,
    pub(crate) take_sweep: Statement,
    pub(crate) sweep_page: Statement,
    pub(crate) note_swept: Statement,
    pub(crate) sweep: [(usize, Statement); 3],
    pub(crate) sweep_breaks: Statement,
    pub(crate) make_free: Statement,
    /// For a layout with other rows: makes those of a new name. After that the lock is asked for again.
    pub(crate) make: Vec<Statement>,
}

impl LeaseStatements {
    pub(crate) fn new(words: &Words) -> Self {
        let made = |text: &str| statement(text, words);
        let in_period = |text: &str, places: [&str; 2]| made(&in_period(text, places));
        let of_many = |text: &str, first: usize| of_many(made, text, first);
        Self {
            acquire: made(ACQUIRE),
            create: made(CREATE),
            refused: made(REFUSED),
            start: in_period(START, ["$6", "$7"]),
            create_start: in_period(CREATE_START, ["$6", "$7"]),
            refused_start: in_period(REFUSED_START, ["$4", "$5"]),
            release: made(RELEASE),
            pass: made(PASS),
            end: made(END),
            abandon: made(ABANDON),
            renew: of_many(RENEW, 2),
            renewed: of_many(RENEWED, 1),
            unlocked: of_many(UNLOCKED, 1),
            look: made(LOOK),
            list: made(LIST),
            leave_record: made(LEAVE_RECORD),
            break_hold: made(BREAK),
            take_back: made(TAKE_BACK),
            record: made(RECORD),
            last_success: made(LAST_SUCCESS),
            read_meta: made(READ_META),
            write_meta: made(WRITE_META),
            take_sweep: made(TAKE_SWEEP),
            sweep_page: made(SWEEP_PAGE),
            note_swept: made(NOTE_SWEPT),
            sweep: of_many(SWEEP, 3),
            sweep_breaks: made(SWEEP_BREAKS),
            make_free: made(MAKE_FREE),
            make: Vec::new(),
        }
    }
}

/// The text with the boundary of a period, whose length and offset are these values.
pub(crate) fn in_period(text: &str, [period, offset]: [&str; 2]) -> String {
    text.replace("{boundary}", BOUNDARY).replace("{period}", period).replace("{offset}", offset)
}

/// A statement for each size of a batch.
pub(crate) fn of_many(made: impl Fn(&str) -> Statement, text: &str, first: usize) -> [(usize, Statement); 3] {
    BATCHES.map(|size| (size, made(&for_many(text, first, size))))
}

/// The names are the values from `first` on, and the owners follow them.
fn for_many(text: &str, first: usize, size: usize) -> String {
    let places = |from: usize| (from..from + size).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
    text.replace("{names}", &places(first)).replace("{owners}", &places(first + size))
}

/// The smallest statement that fits `count` rows.
pub(crate) fn of_size(statements: &[(usize, Statement)], count: usize) -> (usize, &Statement) {
    let fits = statements.iter().find(|(size, _)| *size >= count);
    // A batch is never larger than the largest statement.
    let (size, statement) = fits.unwrap_or(&statements[statements.len() - 1]);
    (*size, statement)
}

/// The text with the server's words, and its values in the order of its placeholders.
pub(crate) fn statement(text: &str, words: &Words) -> Statement {
    let table = |name: &str| format!("{{s}}{name}");
    let text = text
        .replace("{swept}", SWEPT)
        .replace("{unused}", UNUSED)
        .replace("{page}", &PAGE_ROWS.to_string())
        .replace("{locks}", &table(LOCKS))
        .replace("{breaks}", &table(BREAKS))
        .replace("{meta}", &table(META))
        .replace("{now}", words.now)
        .replace("{div}", words.div)
        .replace("{draw}", words.draw.0)
        .replace("{drawn}", words.draw.1)
        .replace("{tells}", words.tells)
        .replace("{unless_there}", words.unless_there)
        .replace("{by_name}", words.by_name)
        .replace("{nobody}", words.nobody);
    let text = words.tables.in_text(&text);
    if words.numbered {
        return Statement { sql: text.into(), order: Box::default() };
    }
    let (mut sql, mut order) = (String::with_capacity(text.len()), Vec::new());
    let mut parts = text.split('$');
    sql.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        // The texts are ours, so the numbers begin with 1.
        order.push(number.parse::<usize>().unwrap_or_default().saturating_sub(1));
        sql.push('?');
        sql.push_str(rest);
    }
    Statement { sql: sql.into(), order: order.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table_names::TableNames;

    fn words() -> Words {
        Words {
            kind: "test",
            tables: TableNames::default(),
            now: "NOW()",
            div: "DIV",
            nobody: "''",
            draw: ("DRAW(", ")"),
            tells: " TELL",
            unless_there: "",
            by_name: "",
            numbered: false,
        }
    }

    #[test]
    fn a_value_that_stands_twice_in_a_text_is_given_twice() {
        let made = statement("UPDATE {locks} SET a = $2 WHERE k = $1 AND b = $2 + {now} {div} 3", &words());
        assert_eq!(&*made.sql, "UPDATE dlock_locks SET a = ? WHERE k = ? AND b = ? + NOW() DIV 3");
        assert_eq!(*made.order, [1, 0, 1]);
    }

    #[test]
    fn numbered_places_stay_as_they_are() {
        let made = statement("SELECT $2, $1", &Words { numbered: true, ..words() });
        assert_eq!((&*made.sql, made.order.len()), ("SELECT $2, $1", 0));
    }

    #[test]
    fn a_batch_has_its_names_before_its_owners() {
        let text = for_many("{names}|{owners}|$1", 2, 2);
        assert_eq!(text, "$2, $3|$4, $5|$1");
    }

    #[test]
    fn no_word_is_left_in_a_statement() {
        let text = format!("{:?}", LeaseStatements::new(&words()));
        let left: Vec<_> =
            text.split('{').skip(1).filter(|part| part.starts_with(|c: char| c.is_lowercase())).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
