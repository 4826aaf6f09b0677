//! The nearest known name to one that was misspelt.

/// The known name that was probably meant: at most one slip of the finger, or a few in a long word.
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let slips = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    let close = slips.filter(|(slips, _)| *slips <= 1 + length / 5 && *slips < length);
    close.min_by_key(|(slips, _)| *slips).map(|(_, name)| name)
}

pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
