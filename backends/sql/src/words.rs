//! The words of a server in the statements.

use std::borrow::Cow;

/// The server's words.
#[derive(Clone, Debug)]
pub struct Words {
    /// The kind of store in one word.
    pub kind: &'static str,
    /// The schema and a dot, which stand before each table's name, or nothing. It is checked where it is read.
    pub schema: Cow<'static, str>,
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
