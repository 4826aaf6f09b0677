//! A key template such as `"stock:<id>"`, cut into pieces. Strings only: what the names mean is decided in `model`.

use std::ops::Range;

const MAX_BYTES: usize = 512;
const MAX_PLACEHOLDERS: usize = 16;

#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

/// `<order.item.id>`: a name, then the fields that lead on from it. Never empty.
#[derive(Debug, PartialEq)]
pub(crate) struct Placeholder {
    pub(crate) name: String,
    pub(crate) fields: Vec<String>,
    /// `<ids..>`: stands for each value of a list, and makes a key of each.
    pub(crate) spread: bool,
    pub(crate) at: Range<usize>,
}

/// Something wrong with the template, and the bytes that it is about.
#[derive(Debug, PartialEq)]
pub(crate) struct Mistake {
    pub(crate) text: String,
    pub(crate) at: Range<usize>,
}

/// Cuts a template into its pieces, or says everything that is wrong with it.
pub(crate) fn parse(template: &str) -> Result<Vec<Piece>, Vec<Mistake>> {
    let mut reader = TemplateReader::default();
    reader.check_whole(template);
    let mut at = 0;
    while let Some(found) = template[at..].find(['<', '>']) {
        let start = at + found;
        reader.text(&template[at..start]);
        at = reader.bracket(template, start);
    }
    reader.text(&template[at..]);
    reader.finish()
}

#[derive(Default)]
struct TemplateReader {
    pieces: Vec<Piece>,
    mistakes: Vec<Mistake>,
    placeholders: usize,
    spreads: usize,
}

impl TemplateReader {
    fn check_whole(&mut self, template: &str) {
        if template.is_empty() {
            self.mistake(0..0, "the key is empty: every lock needs a name".into());
        }
        if template.len() > MAX_BYTES {
            let text = format!("the key has {} bytes; {MAX_BYTES} is the limit", template.len());
            self.mistake(0..template.len(), text);
        }
        for (at, c) in template.char_indices().filter(|(_, c)| c.is_control()) {
            let text = format!("the key has the control character `{}` at byte {at}", c.escape_default());
            self.mistake(at..at + c.len_utf8(), text);
        }
    }

    /// Reads what begins with the bracket at `start`, and returns where it ends.
    fn bracket(&mut self, template: &str, start: usize) -> usize {
        let rest = &template[start..];
        if rest.starts_with("<<") {
            self.text("<");
            return start + 2;
        }
        if rest.starts_with('>') {
            self.mistake(start..start + 1, format!("stray `>` at byte {start} of the key: no `<` opens it. A template cannot have a plain `>`; in #[distributed_lock] build such a key: `key = dlock::Key::text(\"a>b\")`"));
            return start + 1;
        }
        let inner = &rest[1..];
        let length = inner.find(['<', '>']).unwrap_or(inner.len());
        let end = start + 1 + length;
        if inner[length..].starts_with('>') {
            self.placeholder(template, &inner[..length], start..end + 1);
            return end + 1;
        }
        let text = format!("unclosed `<` at byte {start} of the key: close it with `>`, or write `<<` for a plain `<`");
        self.mistake(start..end, text);
        end
    }

    fn placeholder(&mut self, template: &str, inner: &str, at: Range<usize>) {
        let (path, spread) = inner.strip_suffix("..").map_or((inner, false), |path| (path, true));
        let mut segments = path.split('.').map(str::to_owned);
        let name = segments.next().unwrap_or_default();
        let fields: Vec<String> = segments.collect();
        if inner.is_empty() {
            let text = format!("empty placeholder `<>` at byte {} of the key: name a parameter in it", at.start);
            self.mistake(at, text);
        } else if name == "_" {
            self.mistake(at, "`<_>` names nothing: give the parameter a name and use that".into());
        } else if !is_name(&name) || !fields.iter().all(|field| is_name(field) || is_number(field)) {
            let mut text = format!(
                "`<{inner}>` is not a placeholder: expected a parameter or a field of one, such as `<id>`, `<order.id>` or `<pair.0>`"
            );
            if inner.contains('(') {
                let before = &template[..at.start];
                let start = if before.is_empty() || before.contains(['<', '>']) { "…" } else { before };
                text = format!(
                    "`<{inner}>` is not a placeholder: a template cannot call anything; in #[distributed_lock] build the key: `key = dlock::Key::text({start:?}).value(&{inner})`"
                );
            }
            self.mistake(at, text);
        } else {
            self.placeholders += 1;
            if self.placeholders == MAX_PLACEHOLDERS + 1 {
                self.mistake(at.clone(), format!("the key has more than {MAX_PLACEHOLDERS} placeholders"));
            }
            self.spreads += usize::from(spread);
            if spread && self.spreads == 2 {
                let text = format!("`<{inner}>` is the second list in this key: one key can go through one list only");
                self.mistake(at.clone(), text);
            }
            self.pieces.push(Piece::Placeholder(Placeholder { name, fields, spread, at }));
        }
    }

    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn mistake(&mut self, at: Range<usize>, text: String) {
        self.mistakes.push(Mistake { text, at });
    }

    fn finish(self) -> Result<Vec<Piece>, Vec<Mistake>> {
        if self.mistakes.is_empty() { Ok(self.pieces) } else { Err(self.mistakes) }
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.strip_prefix("r#").unwrap_or(text).chars();
    chars.next().is_some_and(|c| c == '_' || c.is_alphabetic()) && chars.all(|c| c == '_' || c.is_alphanumeric())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces as one readable line: text in quotes, placeholders in brackets.
    fn pieces(template: &str) -> String {
        let show = |piece: Piece| match piece {
            Piece::Text(text) => format!("{text:?}"),
            Piece::Placeholder(p) => {
                let dots = if p.spread { ".." } else { "" };
                format!("[{}{dots}@{}..{}]", [vec![p.name], p.fields].concat().join(" "), p.at.start, p.at.end)
            }
        };
        parse(template).expect(template).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn mistakes(template: &str) -> Vec<String> {
        parse(template).expect_err(template).into_iter().map(|m| m.text).collect()
    }

    #[test]
    fn a_template_is_cut_into_text_and_placeholders() {
        for (template, expected) in [
            ("nightly", r#""nightly""#),
            ("stock:<id>", r#""stock:" [id@6..10]"#),
            ("<a><b>", "[a@0..3] [b@3..6]"),
            ("<order.item.id>!", r#"[order item id@0..15] "!""#),
            ("<pair.0.1>", "[pair 0 1@0..10]"),
            ("<self.id>", "[self id@0..9]"),
            ("<r#type>", "[r#type@0..8]"),
            ("<größe>", "[größe@0..9]"),
            ("o:<ids..>", r#""o:" [ids..@2..9]"#),
            ("<order.ids..>:<n>", r#"[order ids..@0..13] ":" [n@14..17]"#),
        ] {
            assert_eq!(pieces(template), expected, "{template}");
        }
    }

    /// All short texts of these characters.
    fn texts() -> impl Iterator<Item = String> {
        const PARTS: [&str; 6] = ["<", ">", ".", "a", "0", "é"];
        (0..=6).flat_map(|length| {
            (0..PARTS.len().pow(length)).map(move |number| {
                (0..length).map(|place| PARTS[number / PARTS.len().pow(place) % PARTS.len()]).collect()
            })
        })
    }

    /// Pieces as their template.
    fn written(pieces: &[Piece]) -> String {
        let write = |piece: &Piece| match piece {
            Piece::Text(text) => text.replace('<', "<<"),
            Piece::Placeholder(p) => {
                let path = [std::slice::from_ref(&p.name), &p.fields].concat().join(".");
                format!("<{path}{}>", if p.spread { ".." } else { "" })
            }
        };
        pieces.iter().map(write).collect()
    }

    #[test]
    fn the_pieces_of_each_template_give_it_back() {
        let mut templates = 0;
        for text in texts() {
            match parse(&text) {
                Ok(pieces) => {
                    templates += 1;
                    assert_eq!(written(&pieces), text);
                    for piece in pieces {
                        if let Piece::Placeholder(p) = &piece {
                            assert_eq!(text[p.at.clone()], written(&[piece]), "{text}");
                        }
                    }
                }
                Err(mistakes) => assert!(mistakes.iter().all(|mistake| text.get(mistake.at.clone()).is_some())),
            }
        }
        assert!(templates > 1000, "{templates}");
    }

    #[test]
    fn a_doubled_bracket_is_a_plain_one() {
        assert_eq!(pieces("a<<b"), r#""a<b""#);
        assert_eq!(pieces("<<<id>"), r#""<" [id@2..6]"#);
        assert_eq!(pieces("<<<<"), r#""<<""#);
    }

    #[test]
    fn an_error_in_a_template_says_what_is_wrong_and_where() {
        for (template, part) in [
            ("", "the key is empty"),
            ("stock:<id", "unclosed `<` at byte 6"),
            ("stock:<", "unclosed `<` at byte 6"),
            ("<a<b>", "unclosed `<` at byte 0"),
            ("stock:<>", "empty placeholder `<>` at byte 6"),
            ("a>b", "stray `>` at byte 1"),
            ("<<id>", "stray `>` at byte 4"),
            ("<_>", "`<_>` names nothing"),
            ("< id>", "`< id>` is not a placeholder"),
            ("<id.>", "`<id.>` is not a placeholder"),
            ("<0>", "`<0>` is not a placeholder"),
            ("<..>", "`<..>` is not a placeholder"),
            ("<ids...>", "`<ids...>` is not a placeholder"),
            ("<ids..id>", "`<ids..id>` is not a placeholder"),
            ("<a..><b..>", "`<b..>` is the second list"),
            ("<f()>", "`<f()>` is not a placeholder"),
            ("<id:04>", "`<id:04>` is not a placeholder"),
            ("a\0b", r"the control character `\u{0}` at byte 1"),
            ("a\nb", r"the control character `\n` at byte 1"),
            (&"x".repeat(513), "the key has 513 bytes; 512 is the limit"),
            (&"<a>".repeat(17), "more than 16 placeholders"),
        ] {
            let found = mistakes(template);
            assert!(found.len() == 1 && found[0].contains(part), "{template:?}: {found:?}");
        }
    }

    #[test]
    fn the_length_limits_of_a_template_are_inclusive() {
        assert!(parse(&"x".repeat(512)).is_ok());
        assert!(parse(&"<a>".repeat(16)).is_ok());
    }

    #[test]
    fn all_errors_of_a_template_are_reported_at_once() {
        assert_eq!(mistakes("a>b:<>:<c").len(), 3);
    }
}
