//! The words of a server in the statements, and a statement that is made of them.

use std::sync::Arc;

use crate::tables::table_names::TableNames;

/// The server's words.
#[derive(Clone, Debug)]
pub struct Words {
    /// The kind of store in one word.
    pub kind: &'static str,
    /// The names of dlock's tables.
    pub tables: TableNames,
    /// The server's time in microseconds since 1970.
    pub now: &'static str,
    /// The division of whole numbers.
    pub div: &'static str,
    /// An owner that is nobody: no bytes.
    pub nobody: &'static str,
    /// The words before and after the expression of a new token.
    pub draw: (&'static str, &'static str),
    /// The end of a statement that draws a token.
    pub tells: &'static str,
    /// The end of an insert that changes nothing if the row is there; empty where the server then answers with
    /// [`Refusal::Duplicate`](crate::Refusal::Duplicate).
    pub unless_there: &'static str,
    /// The hint by which the server looks several rows up by their names. One that reads a small table as a whole would wait for rows
    /// of other keys that somebody keeps locked.
    pub by_name: &'static str,
    /// Whether placeholders have numbers: `$1`, and not `?`.
    pub numbered: bool,
}

/// A statement with the places of its values.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The text, as the server takes it.
    pub sql: Arc<str>,
    /// For each placeholder of the text that has no number: the index of its value.
    pub order: Box<[usize]>,
}
