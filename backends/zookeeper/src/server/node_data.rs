//! The data of dlock's nodes: a word that marks them, and the note.

use dlock_contract::Note;

const MARK: &str = "dlock ";

/// The data of a node.
pub(crate) fn of(note: &Note) -> Vec<u8> {
    format!("{MARK}{}", note.as_str()).into_bytes()
}

/// The note in a node of dlock. Returns nothing for a foreign client's node, because its data may be secret.
pub(crate) fn note(data: &[u8]) -> Option<Note> {
    let text = std::str::from_utf8(data).ok()?;
    text.strip_prefix(MARK).map(Note::from_stored)
}
