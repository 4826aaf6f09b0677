//! ShedLock's table as the place where a lock is taken, so that Java nodes and ours exclude each other.
//!
//! ShedLock's row decides who holds the lock: the node that sets `lock_until` after the earlier one has passed. A row
//! of the lease table has the columns that ShedLock's table lacks: owner, token, note, runs. One statement changes
//! both. It locks our row first, so that the row cannot change before the statement has ended.
//!
//! ShedLock compares `locked_by` before it frees a row, and writes the host's name there. Ours is `<host>#<hold id>`,
//! so no unlock of a Java node frees it, and the hold id identifies our hold.

use std::time::Duration;

use dlock_contract::{Claim, Error, ErrorKind, Health, HoldId, Listing, LockKey, Note, Result, TtlRange};
use dlock_store::Address;

use crate::tables::row::{RowName, end_of};
use crate::tables::statements::{
    ABANDON, ACQUIRE, BOUNDARY, BREAK, END, LeaseStatements, RELEASE, RENEW, START, in_period, of_many, statement,
};
use crate::tables::table_names::{is_identifier, is_name};
use crate::tables::words::Words;

/// The longest name that ShedLock's own definition of the table takes.
const LONGEST_NAME: usize = 64;

/// Some servers know no `TIMESTAMP` after January 2038.
pub(crate) const TTL: TtlRange = TtlRange::new(Duration::from_millis(10), Duration::from_secs(366 * 24 * 3600))
    .in_steps_of(Duration::from_millis(1));

/// The server's words for ShedLock's table.
#[derive(Clone, Debug)]
pub struct ShedlockWords {
    /// The table.
    pub table: ShedlockTable,
    /// The quotes around a name with large letters.
    pub quote: char,
    /// One statement that changes both rows. It has `{set_theirs}`, `{set_ours}`, `{own}` (which of our rows), `{theirs}` (which of
    /// ShedLock's) and `{if}`.
    pub change: &'static str,
    /// One statement that changes our row, and ShedLock's where `{mine}`. It has `{set_theirs}`, `{set_ours}` and `{if}`.
    pub abandon: &'static str,
    /// The time of the statement as the table has it: universal, without a zone.
    pub now: &'static str,
    /// The time of the statement, rounded down. As `lock_until` it makes the lock free at once.
    pub free: &'static str,
    /// This many microseconds after now, rounded up. It has `{time}`.
    pub until: &'static str,
    /// How long the lock is still held, in microseconds.
    pub left: &'static str,
    /// `locked_at` in microseconds since 1970.
    pub locked_us: &'static str,
    /// The last 17 characters of `locked_by`: of ours, `#` and the hold id.
    pub tail: &'static str,
    /// `#` and the hold id of the owner `$2`.
    pub of_owner: &'static str,
    /// `#` and the hold id of our row.
    pub of_row: &'static str,
    /// `#` and the hold id `$2`.
    pub of_hold: &'static str,
    /// The name as bytes, for an order that no collation changes.
    pub name_bytes: &'static str,
}

/// ShedLock's row was taken by a hold of ours, and not by a Java node since.
const IS_OURS: &str = "{tail} = {of_row}";

/// A Java node has started this period's run.
const RAN_ELSEWHERE: &str = "NOT ({is_ours}) AND {boundary_of_theirs} >= {boundary}";

/// Whether the lock is free. As in the lease row, but with ShedLock's `lock_until` in the place of `expires_us`.
const FREE: &str = "(lock_until <= {utc} OR owner = $2 AND {tail} = {of_owner})";

const FREE_TO_START: &str = "\
    (owner = $2 AND {tail} = {of_owner} OR lock_until <= {utc} AND NOT ({ran_elsewhere}) AND ( \
    run_boundary IS NULL OR run_boundary < {boundary} OR run_open = 1 AND ($8 = 1 OR run_owner = $2)))";

const MINE: &str = "owner = $2 AND {tail} = {of_owner}";

/// Why a lock was not granted, from both rows. Values: name.
const REFUSED: &str = "\
    SELECT {left}, CASE WHEN {is_ours} THEN note ELSE '{foreign_client}' END, lock_until > {utc} \
    FROM {locks} CROSS JOIN {theirs_table} WHERE k = $1 AND name = $1";

/// Why a run was not started, from both rows. Values: name, owner, whether it may be run again, period, offset.
const REFUSED_START: &str = "\
    SELECT {left}, CASE WHEN {is_ours} THEN note ELSE '{foreign_client}' END, lock_until > {utc}, \
        run_boundary >= {boundary} OR {ran_elsewhere}, \
        run_open = 1 AND ($3 = 1 OR run_owner = $2) AND NOT ({ran_elsewhere}) \
    FROM {locks} CROSS JOIN {theirs_table} WHERE k = $1 AND name = $1";

/// Which of these owners still hold. Values: names, owners.
const HELD: &str = "\
    SELECT owner FROM {locks}{by_name} CROSS JOIN {theirs_table}{by_name} \
    WHERE k IN ({names}) AND name IN ({names}) AND owner IN ({owners}) AND {is_ours} AND lock_until > {utc}";

/// Lease left, token, note, hold id. Values: name.
const LOOK: &str = "\
    SELECT {left}, CASE WHEN {is_ours} THEN token END, CASE WHEN {is_ours} THEN note ELSE '{foreign_client}' END, \
        CASE WHEN {is_ours} AND owner <> {nobody} THEN hold ELSE '' END \
    FROM {theirs_table} LEFT JOIN {locks} ON k = $1 WHERE name = $1 AND lock_until > {utc}";

/// One page of a listing. Values: after, start, end, limit.
const LIST: &str = "\
    SELECT name, '', lock_until > {utc} FROM {theirs_table} \
    WHERE {name_bytes} > $1 AND {name_bytes} >= $2 AND {name_bytes} < $3 ORDER BY {name_bytes} LIMIT $4";

/// Makes our row of a name that nobody has used. Values: name.
const MAKE_OURS: &str = "\
    INSERT INTO {locks} (k, token, expires_us, note, hold) VALUES ($1, GREATEST({now}, {swept}), {now}, '', ''){unless_there}";

/// Makes ShedLock's row of such a name: free, and without a run. Values: name.
const MAKE_THEIRS: &str = "\
    INSERT INTO {theirs_table} (name, lock_until, locked_at, locked_by) \
    VALUES ($1, '2000-01-01 00:00:00', '2000-01-01 00:00:00', 'dlock'){unless_there}";

/// ShedLock's table, as the URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShedlockTable {
    /// Its schema, if the URL names one.
    pub schema: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether the URL names it.
    pub is_named: bool,
    /// Whether it is made if it is missing.
    pub is_made: bool,
}

impl ShedlockTable {
    /// The table, if the URL asks for locks there. `schema` is the schema of dlock's tables, if the URL names one.
    ///
    /// # Errors
    /// If the name has characters that are not allowed, or if the URL names a table without the layout.
    pub fn of(address: &Address, schema: Option<&str>) -> Result<Option<Self>> {
        let parts =
            |text: &str| (text.split('.').count() <= 2 && text.split('.').all(is_name)).then(|| text.to_owned());
        let table = address.read("shedlock_table", parts)?;
        let is_made = address.option("shedlock_create").is_some();
        if address.option("layout").is_none() {
            return match table.is_some() || is_made {
                true => {
                    Err(address.wrong("`shedlock_table` and `shedlock_create` are only allowed with layout=shedlock"))
                }
                false => Ok(None),
            };
        }
        let is_named = table.is_some();
        let table = table.unwrap_or_else(|| "shedlock".into());
        let (schema, name) = match table.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (schema, table.as_str()),
        };
        Ok(Some(Self { schema: schema.map(str::to_owned), name: name.to_owned(), is_named, is_made }))
    }

    /// The name as it is written in a statement. Names without large letters need no quotes.
    #[must_use]
    pub fn in_statement(&self, quote: char) -> String {
        let quoted = |name: &str| if is_identifier(name) { name.to_owned() } else { format!("{quote}{name}{quote}") };
        let schema = self.schema.iter().map(String::as_str);
        schema.chain([self.name.as_str()]).map(quoted).collect::<Vec<_>>().join(".")
    }

    /// The statement that makes the table. `definition` is the shipped definition.
    #[must_use]
    pub fn create(&self, quote: char, definition: &str) -> String {
        definition.trim().replacen("CREATE TABLE shedlock", &format!("CREATE TABLE {}", self.in_statement(quote)), 1)
    }

    /// The error for a table that is missing. `is_forbidden`: the account may not make it.
    #[must_use]
    pub fn missing(&self, quote: char, definition: &str, is_forbidden: bool) -> Error {
        let (kind, why) = match is_forbidden {
            true => (ErrorKind::PermissionDenied, "the account sees no such table and may not make it"),
            false => (ErrorKind::SchemaMismatch, "it is missing"),
        };
        let create = self.create(quote, definition);
        let text = format!("{why}; let shedlock_create=yes in the URL create it, or do it: {create}");
        Error::new(kind, format!("ShedLock's table {}: {text}", self.in_statement(quote)))
    }

    /// The error for a table that cannot hold locks. `mend` is the end of the `ALTER TABLE` that mends it.
    #[must_use]
    pub fn unfit(&self, quote: char, why: &str, mend: &str) -> Error {
        let table = self.in_statement(quote);
        let text = format!(
            "ShedLock's table {table}: {why}. This mends it, while no program locks in it: ALTER TABLE {table} {mend}"
        );
        Error::new(ErrorKind::SchemaMismatch, text)
    }

    /// Checks the four columns. `found` has the name and type of each column of the table; `judge` gets a column's name
    /// and type. For a column that does not fit, it returns the needed type and the end of the `ALTER TABLE` that mends
    /// it.
    ///
    /// # Errors
    /// For the first column that is missing, or that loses what a lock needs.
    pub fn check_columns<T: std::fmt::Display>(
        &self,
        quote: char,
        found: &[(String, T)],
        judge: impl Fn(&str, Option<&T>) -> Option<(&'static str, String)>,
    ) -> Result<()> {
        for column in ["name", "lock_until", "locked_at", "locked_by"] {
            let found = found.iter().find(|(name, _)| name.eq_ignore_ascii_case(column)).map(|(_, found)| found);
            if let Some((need, mend)) = judge(column, found) {
                let is = found.map_or_else(|| "is missing".to_owned(), |found| format!("is {found}"));
                return Err(self.unfit(quote, &format!("its column `{column}` {is}, and must be {need}"), &mend));
            }
        }
        Ok(())
    }

    /// Adds the finding of a readiness probe about rows with a later `locked_at` than the server's time.
    #[must_use]
    pub fn told_in(&self, health: Health, later: i64) -> Health {
        match later {
            0 => health,
            _ => health.finding(format!(
                "{later} rows of ShedLock's table have a `locked_at` in the future, so some Java node writes the time of its own clock \
                 or zone, and locks may be taken twice: let all Java nodes use usingDbTime()"
            )),
        }
    }

    /// The error if another table has the same name except for case or schema. One of the two is the Java nodes' table.
    #[must_use]
    pub fn other_than(&self, twins: &[String]) -> Error {
        let text = format!(
            "ShedLock's table `{}`: there is `{}` too, and locks of two tables do not exclude each other: write shedlock_table= \
             with the name that the Java nodes use, as it stands in the database, with its schema if it has one",
            self.name,
            twins.join("`, `")
        );
        Error::new(ErrorKind::SchemaMismatch, text)
    }
}

/// The statements by which a lock is taken in ShedLock's table.
pub(crate) fn statements(words: &Words, shed: &ShedlockWords) -> LeaseStatements {
    let made = |text: &str| statement(&with_words(text, shed), words);
    let change = |theirs: &str, ours: &str, condition: &str| {
        let text = shed.change.replace("{own}", "k = $1").replace("{theirs}", "name = $1");
        text.replace("{set_theirs}", theirs).replace("{set_ours}", ours).replace("{if}", condition)
    };
    let until = |time: &str| format!("lock_until = {}", shed.until.replace("{time}", time));
    let taken = format!("{}, locked_at = {{utc}}, locked_by = $5", until("$3"));
    // The value is the whole of `locked_by`.
    let ours = |text: &str| set_of(text).replace("hold = $5", "hold = RIGHT($5, 16)");
    let start = |text: &str, places: [&str; 2]| {
        let text = text.replace("{ran_elsewhere}", RAN_ELSEWHERE);
        let theirs = BOUNDARY.replace("{now}", shed.locked_us);
        made(&in_period(&text.replace("{boundary_of_theirs}", &theirs), places))
    };
    let kept = format!("lock_until = CASE WHEN $3 = 0 THEN {{free}} ELSE {} END", shed.until.replace("{time}", "$3"));
    // A kept key still has its last owner.
    let ended = set_of(END).replace("hold = '', ", "");
    let broken = "hold = $2 AND owner IS NOT NULL AND owner <> {nobody} AND lock_until > {utc} AND {tail} = {of_hold}";
    let abandon = shed.abandon.replace("{set_ours}", set_of(ABANDON)).replace("{if}", condition_of(ABANDON));
    let renew = shed
        .change
        .replace("{own}", "k IN ({names}) AND owner IN ({owners})")
        .replace("{theirs}", "name IN ({names})")
        .replace("{set_theirs}", &until("$1"))
        .replace("{set_ours}", set_of(RENEW))
        .replace("{if}", "{is_ours} AND lock_until > {utc}")
        .replace("{tells}", "");
    let held = |more: &str, first: usize| of_many(|text| made(text), &format!("{HELD}{more}"), first);
    LeaseStatements {
        acquire: made(&change(&taken, &ours(ACQUIRE), FREE)),
        refused: made(REFUSED),
        start: start(&change(&taken, &ours(START), FREE_TO_START), ["$6", "$7"]),
        refused_start: start(REFUSED_START, ["$4", "$5"]),
        release: made(&change("lock_until = {free}", set_of(RELEASE), MINE).replace("{tells}", "")),
        end: made(&change(&kept, &ended, MINE).replace("{tells}", "")),
        abandon: made(&abandon.replace("{mine}", MINE)),
        renew: of_many(|text| made(text), &renew, 2),
        renewed: held("", 1),
        unlocked: held(" FOR UPDATE SKIP LOCKED", 1),
        look: made(LOOK),
        list: made(LIST),
        break_hold: made(&change("lock_until = {free}", set_of(BREAK), broken).replace("{tells}", "")),
        make: vec![made(MAKE_OURS), made(MAKE_THEIRS)],
        ..LeaseStatements::new(words)
    }
}

/// The assignments of a statement of the lease row.
fn set_of(text: &str) -> &str {
    let (_, text) = text.split_once(" SET ").unwrap_or_default();
    text.rsplit_once(" WHERE ").map_or(text, |(set, _)| set)
}

/// The condition of a statement, without the name.
fn condition_of(text: &str) -> &str {
    text.split_once(" WHERE k = $1 AND ").map_or("", |(_, condition)| condition)
}

fn with_words(text: &str, shed: &ShedlockWords) -> String {
    text.replace("{is_ours}", IS_OURS)
        .replace("{utc}", shed.now)
        .replace("{free}", shed.free)
        .replace("{left}", shed.left)
        .replace("{tail}", shed.tail)
        .replace("{of_owner}", shed.of_owner)
        .replace("{of_row}", shed.of_row)
        .replace("{of_hold}", shed.of_hold)
        .replace("{name_bytes}", shed.name_bytes)
        .replace("{foreign_client}", &Note::FOREIGN_CLIENT.replace('\'', "''"))
        .replace("{theirs_table}", &shed.table.in_statement(shed.quote))
}

/// The name of a lock in ShedLock's table, and of its row in ours. Java programs use this name.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a key without a literal name, and for a name that the column does not take.
pub(crate) fn row_name(key: &LockKey) -> Result<RowName> {
    let name = key.literal()?.as_str().to_owned();
    if name.chars().count() > LONGEST_NAME || name.len() >= 255 {
        let text = format!("the name of the lock is too long for ShedLock's table: it takes {LONGEST_NAME} characters");
        let need = format!("a name of at most {LONGEST_NAME} characters");
        return Err(Error::new(ErrorKind::Unsupported { need }, text).with_key(key.as_str()));
    }
    Ok(RowName { name, is_long: false })
}

/// The text in `locked_by` while this claim holds.
pub(crate) fn locked_by(claim: &Claim) -> String {
    format!("{}#{}", claim.note.host().unwrap_or("dlock"), HoldId::of(&claim.owner))
}

/// The prefix of the names that a listing asks for, and the range of rows in which they are. Names there have no namespace.
pub(crate) fn range_of(listing: &Listing) -> (String, String, String) {
    let prefix = listing.prefix.clone();
    (prefix.clone(), prefix.clone(), end_of(&prefix))
}

/// The lock with this name, which may be a Java node's. No name is refused, because ShedLock takes any name.
pub(crate) fn listed_key(name: &str) -> Option<LockKey> {
    Some(LockKey(name.into()))
}
