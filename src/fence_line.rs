//! The fencing token as one line in a statement of the user's own.

#[cfg(doc)]
use dlock_contract::ErrorKind;
use dlock_contract::{Error, Fence, Result};

/// The fence as one line in an `UPDATE` of your own, on a column that keeps the highest token of the row's writers.
///
/// The column is a whole number of 64 bits that is not NULL, and begins with 0. `placeholder` stands for the token, as
/// your client writes it: `$3`, `?`, `:token`. With `?` the token is bound twice: in the change and in the condition.
///
/// ```
/// # use dlock::{ErrorKind, Fence, Key, LockKey};
/// # fn main() -> dlock::Result<()> {
/// # let fence = Fence::from_parts(LockKey::new("shop", Key::text("stock"))?, Some(7))?;
/// let line = dlock::fenced::line(&fence, "fence", "$3")?;
/// let sql = format!("UPDATE stock SET n = $1, {} WHERE id = $2 AND {}", line.set(), line.condition());
/// assert_eq!(sql, "UPDATE stock SET n = $1, fence = $3 WHERE id = $2 AND fence <= $3");
/// // Bind `line.token()`, run it with any client, and hand over the number of rows that it has changed.
/// assert!(line.written(1).is_ok());
/// assert!(matches!(line.written(0).unwrap_err().kind(), ErrorKind::FenceStale { .. }));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ConfigInvalid`](ErrorKind::ConfigInvalid) for a column's name with other than letters, digits, `_` and `.`.
pub fn line<'a>(fence: &'a Fence, column: &'a str, placeholder: &'a str) -> Result<Line<'a>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    if column.is_empty() || !column.bytes().all(plain) {
        return Err(Error::config("column", "the name of a column has letters, digits, `_` and `.` only"));
    }
    Ok(Line { fence, column, placeholder })
}

/// See [`line()`].
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    fence: &'a Fence,
    column: &'a str,
    placeholder: &'a str,
}

impl Line<'_> {
    /// The text after `SET`.
    #[must_use]
    pub fn set(&self) -> String {
        format!("{} = {}", self.column, self.placeholder)
    }

    /// The text after `WHERE`.
    #[must_use]
    pub fn condition(&self) -> String {
        format!("{} <= {}", self.column, self.placeholder)
    }

    /// The value of the placeholder. Tokens are below 2^53.
    #[must_use]
    pub fn token(&self) -> i64 {
        i64::try_from(self.fence.get()).unwrap_or(i64::MAX)
    }

    /// Judges the number of rows that the statement has changed, of which your key finds one.
    ///
    /// # Errors
    /// [`FenceStale`](ErrorKind::FenceStale) if there is none: the row has a higher token, or is not there. The error's `seen` is
    /// the lowest token that the row can have then.
    pub fn written(&self, rows: u64) -> Result<()> {
        if rows > 0 {
            return Ok(());
        }
        let text = format!(
            "the write carries token {}, and the row has a higher one, or is not there: the lock has gone to another holder",
            self.fence
        );
        Err(Error::write_refused(self.fence, self.fence.get() + 1, text))
    }
}

#[cfg(test)]
mod tests {
    use dlock_contract::{ErrorKind, Key, LockKey};

    use super::*;

    #[test]
    fn the_name_of_a_column_cannot_carry_a_statement() {
        let fence = Fence::from_parts(LockKey::new("shop", Key::text("a")).unwrap(), Some(7)).unwrap();
        for bad in ["", "a b", "a;", "a'", "\"a\"", "a--"] {
            let error = line(&fence, bad, "?").unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{bad}: {error}");
        }
        assert_eq!(line(&fence, "s.fence", ":t").unwrap().condition(), "s.fence <= :t");
    }
}
