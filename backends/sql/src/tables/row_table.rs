//! Which row of which table is the lock of a key.

use dlock_contract::{Error, ErrorKind, LockKey, Result};
use dlock_store::{Address, OptionRow};

use crate::tables::row::name_of;
use crate::tables::table_names::{TableNames, is_name};

/// The table whose rows are locked, where the user has named no other one.
pub const ROW_KEYS: &str = "{t}row_keys";

/// The options of a URL for rows in a table of the user's own.
pub const ROW_OPTIONS: [OptionRow; 2] = [
    OptionRow::new("table", "of way=row: the table of your own whose rows are locked, such as orders"),
    OptionRow::new("column", "of way=row: the column of that table that names a row, such as id"),
];

/// The table that has the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTable {
    /// Its schema, if that is said.
    pub schema: Option<String>,
    /// Its name.
    pub name: String,
    /// The column that names a row.
    pub column: String,
    /// Whether it is the user's. If not, missing rows are made.
    pub is_own: bool,
}

/// The type of a column that names rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Bytes, or a text that is compared byte by byte: dlock's own names.
    Name,
    /// A whole number.
    Number,
    /// A text of the user's.
    Text,
    /// A UUID.
    Uuid,
}

/// The value by which a row is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowKey {
    /// A name of dlock's, in ASCII.
    Name(String),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
    /// A UUID in small letters.
    Uuid(String),
}

impl RowTable {
    /// The table that the URL names, or dlock's.
    ///
    /// # Errors
    /// If one of the two options is missing, or for a name that would need quotes inside of its quotes.
    pub fn of(address: &Address, tables: &TableNames) -> Result<Self> {
        let (table, column) = (address.option("table"), address.option("column"));
        if let (None, None) = (table, column) {
            return Ok(Self {
                schema: tables.schema().map(str::to_owned),
                name: tables.in_text(ROW_KEYS),
                column: "k".into(),
                is_own: false,
            });
        }
        let is_row = address.option("way") == Some("row");
        let (Some(table), Some(column), true) = (table, column, is_row) else {
            return Err(address.wrong("`table` and `column` go together, and belong to way=row"));
        };
        let (schema, name) = match table.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, table),
        };
        if ![schema, Some(name), Some(column)].into_iter().flatten().all(is_name) {
            return Err(
                address.wrong("`table` and `column` take names of letters, digits and underscores, as in the database")
            );
        }
        let (schema, name, column) = (schema.map(str::to_owned), name.to_owned(), column.to_owned());
        Ok(Self { schema, name, column, is_own: true })
    }

    /// The row of a key.
    ///
    /// # Errors
    /// For a key that names no row of this type.
    pub(crate) fn key_of(&self, kind: RowKind, key: &LockKey) -> Result<RowKey> {
        if !self.is_own {
            return Ok(RowKey::Name(name_of(key.as_str()).name));
        }
        let literal = key.literal()?;
        let text = literal.as_str();
        let found = match kind {
            RowKind::Name | RowKind::Text => Some(RowKey::Text(text.to_owned())),
            RowKind::Number => {
                // Each number has one way to be written, so two keys are never one row.
                let number = text.parse().ok().filter(|number: &i64| number.to_string() == text);
                number.map(RowKey::Number)
            }
            RowKind::Uuid => is_uuid(text).then(|| RowKey::Uuid(text.to_owned())),
        };
        found.ok_or_else(|| {
            let kind = if kind == RowKind::Uuid { "a UUID in small letters" } else { "a whole number" };
            let error = Error::new(
                ErrorKind::Unsupported {
                    need: format!("a key that is {kind}, as the column `{}` has it", self.column),
                },
                format!("the key is not {kind}, so it names no row of the table `{}`", self.name),
            );
            error.with_key(key.as_str()).never_sent()
        })
    }

    /// The name of the record of a key. Rows of two tables have two records.
    pub(crate) fn record_of(&self, key: &LockKey, row: &RowKey) -> String {
        if !self.is_own {
            return name_of(key.as_str()).name;
        }
        name_of(&format!("{}{}", self.records(), row.text())).name
    }

    /// The part of a URL that decides which lock a key is, by the full name of the column in the server. Records are named as the URL is written,
    /// so one table that is written in two ways would have two tokens.
    #[must_use]
    pub fn place(&self, column: &str) -> String {
        if self.schema.is_some() { format!("{column}, written with its schema") } else { column.to_owned() }
    }

    /// The beginning of the names of its records.
    pub(crate) fn records(&self) -> String {
        let schema = self.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
        format!("{schema}{}.{}=", self.name, self.column)
    }
}

impl RowKey {
    /// As the server shows it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(text) | Self::Text(text) | Self::Uuid(text) => text.clone(),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let is_right = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;
    use dlock_store::{UrlBody, UrlForm};

    use super::*;

    const FORM: UrlForm = UrlForm::new("a URL", "sql://h/d", &["sql"], UrlBody::HostsAfterLastAt).options(&[
        ROW_OPTIONS[0],
        ROW_OPTIONS[1],
        OptionRow::one_of("way", &["lease", "row"]),
    ]);

    fn table(query: &str) -> Result<RowTable> {
        let address = Address::parse(&format!("sql://h/d?{query}"), &FORM)?;
        RowTable::of(&address, &TableNames::of(&address, Some("s"))?)
    }

    fn key(value: &str) -> LockKey {
        LockKey::new("shop", Key::new().value(value)).unwrap()
    }

    #[test]
    fn a_table_is_dlocks_or_the_one_that_the_url_names() {
        let own = table("way=row").unwrap();
        assert_eq!((own.name.as_str(), own.schema.as_deref(), own.is_own), ("dlock_row_keys", Some("s"), false));
        let users = table("way=row&table=shop.Orders&column=id").unwrap();
        assert_eq!((users.name.as_str(), users.schema.as_deref(), users.is_own), ("Orders", Some("shop"), true));
        let wrong = ["table=o&column=id", "way=row&table=o", "way=row&column=id", "way=lease&table=o&column=id"];
        let names = ["a%20b", "a%22b", "a%60b", "a%3Bb", "1a", "a.b.c", "a-b", "", "%C3%A4"];
        let unsafe_names = names.map(|name| format!("way=row&table={name}&column=id"));
        let unsafe_columns = names.map(|name| format!("way=row&table=o&column={name}"));
        for bad in wrong.map(str::to_owned).into_iter().chain(unsafe_names).chain(unsafe_columns) {
            let error = table(&bad).unwrap_err();
            assert!(error.to_string().contains("table") || error.to_string().contains("column"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_key_is_a_row_in_one_way_only() {
        let users = table("way=row&table=orders&column=id").unwrap();
        let row = |kind, text: &str| users.key_of(kind, &key(text));
        assert_eq!(row(RowKind::Number, "42").unwrap(), RowKey::Number(42));
        assert_eq!(row(RowKind::Text, "a-1").unwrap(), RowKey::Text("a-1".into()));
        let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        assert_eq!(row(RowKind::Uuid, uuid).unwrap(), RowKey::Uuid(uuid.into()));
        for bad in ["042", "+1", "4.0", "a", "9223372036854775808"] {
            assert!(row(RowKind::Number, bad).is_err(), "{bad}");
        }
        for bad in [&uuid.to_uppercase(), "67e55044", &uuid.replace('-', "_")] {
            assert!(row(RowKind::Uuid, bad).is_err(), "{bad}");
        }
        assert_eq!(users.record_of(&key("42"), &RowKey::Number(42)), "orders.id=42");
    }
}
