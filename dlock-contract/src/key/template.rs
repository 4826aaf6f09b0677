//! Templates of keys, as the attribute has them.

/// A template with empty placeholders: `stock:<id>` and `stock:<sku>` make the same keys.
#[must_use]
pub fn without_names(template: &str) -> String {
    let mut bare = String::with_capacity(template.len());
    let mut inside = false;
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // A doubled one is a plain one.
            '<' if !inside && chars.next_if_eq(&'<').is_some() => bare.push_str("<<"),
            '<' => {
                inside = true;
                bare.push('<');
            }
            '>' => {
                inside = false;
                bare.push('>');
            }
            c if !inside => bare.push(c),
            _ => {}
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::without_names;

    #[test]
    fn names_of_placeholders_do_not_matter() {
        assert_eq!(without_names("stock:<id>:<a.b>"), "stock:<>:<>");
        assert_eq!(without_names("a<<b:<<<id>"), "a<<b:<<<>");
        assert_ne!(without_names("<a>:x"), without_names("<a>x"));
    }
}
