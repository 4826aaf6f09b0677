//! The statements about the holders in one table: of exclusive locks, or of readers and writers.

use crate::tables::words::Statement;

/// The holders of a lock, the first grant first. A row counts only if the session that wrote it holds the lock.
///
/// Values: name.
const LOOK: &str = "SELECT note, hold, token FROM {holders} WHERE k = $1 AND {is_held} ORDER BY token";

/// Which holds an operator asks to break. It reads one row by its primary key for each of them.
///
/// Values: names.
const BROKEN: &str = "SELECT hold, broken_record FROM {holders} WHERE k IN ({names}) AND broken_hold = hold";

/// Asks the holder to give its hold up.
///
/// Values: name, hold id, record.
const REQUEST: &str = "\
    UPDATE {holders} SET broken_hold = hold, broken_record = $3 WHERE k = $1 AND hold = $2 AND {is_held}";

/// Takes back the request to break a hold.
///
/// Values: name, hold id.
const TAKE_BACK: &str = "UPDATE {holders} SET broken_hold = NULL WHERE k = $1 AND hold = $2 AND broken_hold = hold";

/// Whether this hold holds the lock.
///
/// Values: name, hold id.
const STANDS: &str = "SELECT token FROM {holders} WHERE k = $1 AND hold = $2 AND {is_held}";

/// The record of a broken hold.
///
/// Values: name, hold id.
const RECORD: &str = "SELECT broken_record FROM {holders} WHERE k = $1 AND broken_hold = $2";

/// How many holds one look covers. Few sizes, so that the server keeps few prepared statements.
const SIZES: [usize; 3] = [1, 16, 128];

/// The statements about the holders in one table.
#[derive(Debug)]
pub(super) struct HolderStatements {
    pub(super) look: Statement,
    pub(super) broken: [(usize, Statement); 3],
    pub(super) request: Statement,
    pub(super) take_back: Statement,
    pub(super) stands: Statement,
    pub(super) record: Statement,
}

impl HolderStatements {
    /// The statements for this table. A row is that of a holder if `is_held` is true.
    pub(super) fn new(table: &str, is_held: &str, made: &impl Fn(&str) -> Statement) -> Self {
        let made = |text: &str| made(&text.replace("{holders}", table).replace("{is_held}", is_held));
        let broken = SIZES.map(|size| {
            let names: Vec<_> = (1..=size).map(|place| format!("${place}")).collect();
            (size, made(&BROKEN.replace("{names}", &names.join(", "))))
        });
        Self {
            look: made(LOOK),
            broken,
            request: made(REQUEST),
            take_back: made(TAKE_BACK),
            stands: made(STANDS),
            record: made(RECORD),
        }
    }
}
