//! The names of dlock's tables in the statements.

use std::borrow::Cow;

use dlock_contract::Result;
use dlock_store::{Address, OptionRow};

/// The option of a URL for other names.
pub const TABLE_PREFIX: OptionRow = OptionRow::new(
    "table_prefix",
    "what the names of dlock's tables begin with, in small letters, digits and underscores; `dlock_` by default",
);

const PREFIX: &str = "dlock_";
/// The longest name of ours has ten more, and MySQL's have 64 at most.
const LONGEST_PREFIX: usize = 48;

/// Where dlock's tables are, and what their names begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableNames {
    /// With a dot, or empty.
    schema: Cow<'static, str>,
    prefix: Cow<'static, str>,
}

impl Default for TableNames {
    fn default() -> Self {
        Self { schema: Cow::Borrowed(""), prefix: Cow::Borrowed(PREFIX) }
    }
}

impl TableNames {
    /// As the URL says, in this schema.
    ///
    /// # Errors
    /// For a prefix that would need quotes, or is too long.
    pub fn of(address: &Address, schema: Option<&str>) -> Result<Self> {
        let prefix = address.read("table_prefix", |text| {
            (is_identifier(text) && text.len() <= LONGEST_PREFIX).then(|| text.to_owned())
        })?;
        Ok(Self {
            schema: schema.map_or(Cow::Borrowed(""), |schema| format!("{schema}.").into()),
            prefix: prefix.map_or(Cow::Borrowed(PREFIX), Cow::Owned),
        })
    }

    /// A text in which `{t}` stands for the prefix and `{s}` for the schema and its dot.
    #[must_use]
    pub fn in_text(&self, text: &str) -> String {
        text.replace("{t}", &self.prefix).replace("{s}", &self.schema)
    }

    /// A table's name as a statement has it. `table` is one of this crate's constants.
    #[must_use]
    pub fn full(&self, table: &str) -> String {
        self.in_text(&format!("{{s}}{table}"))
    }

    /// The shipped statements that make a table or a sequence, for these names. An index is in the schema of its table, and
    /// may not name it.
    #[must_use]
    pub fn create(&self, shipped: &str) -> String {
        let named = shipped.trim().replace(&format!(" INDEX {PREFIX}"), " INDEX {t}");
        self.in_text(&named.replace(&format!(" {PREFIX}"), " {s}{t}"))
    }

    /// The schema, if the URL names one.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.strip_suffix('.')
    }

    /// The scope in the names of these tables' wait queues. Tables of two prefixes have queues of their own.
    #[must_use]
    pub fn queue_scope(&self, database: String) -> String {
        if self.prefix == PREFIX { database } else { format!("{database}/{}", self.prefix) }
    }
}

/// Whether a statement can have the name without quotes: small letters, digits and underscores.
#[must_use]
pub fn is_identifier(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    starts && text.len() <= 63 && text.bytes().all(plain)
}

/// A name that may stand between quotes of any server.
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    begins && text.len() <= 63 && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use dlock_store::{UrlBody, UrlForm};

    use super::*;

    const FORM: UrlForm = UrlForm::new("a test's URL", "sql://host/database", &["sql"], UrlBody::HostsAfterLastAt)
        .options(&[TABLE_PREFIX]);

    fn names(query: &str, schema: Option<&str>) -> Result<TableNames> {
        TableNames::of(&Address::parse(&format!("sql://h/d{query}"), &FORM)?, schema)
    }

    #[test]
    fn tables_begin_with_the_prefix_of_the_url_and_otherwise_with_dlock() {
        assert_eq!(names("", None).unwrap(), TableNames::default());
        let other = names("?table_prefix=my_dlock_", Some("s")).unwrap();
        let [plain, shipped] = [TableNames::default(), other];
        assert_eq!(plain.full("{t}locks"), "dlock_locks");
        assert_eq!(shipped.full("{t}locks"), "s.my_dlock_locks");
        assert_eq!(shipped.create("CREATE TABLE dlock_locks (k TEXT)\n"), "CREATE TABLE s.my_dlock_locks (k TEXT)");
        assert_eq!(shipped.create("CREATE SEQUENCE dlock_tokens"), "CREATE SEQUENCE s.my_dlock_tokens");
        let index = shipped.create("CREATE INDEX dlock_locks_day ON dlock_locks (day)");
        assert_eq!(index, "CREATE INDEX my_dlock_locks_day ON s.my_dlock_locks (day)");
        assert_eq!(
            (plain.queue_scope("d".into()).as_str(), shipped.queue_scope("d".into()).as_str()),
            ("d", "d/my_dlock_")
        );
    }

    #[test]
    fn a_prefix_that_would_need_quotes_is_refused() {
        for bad in ["A", "a-b", "1a", "", "a b", "a;", &"a".repeat(LONGEST_PREFIX + 1)] {
            let error = names(&format!("?table_prefix={}", bad.replace(' ', "%20")), None).unwrap_err();
            assert!(error.to_string().contains("table_prefix"), "{bad}: {error}");
        }
    }
}
