//! Takes a text with settings of sites apart: `shop::deduct ttl=1m wait=5s`.
//!
//! A name and the value of a setting may be in quotes, as in an attribute. A `;` ends the settings of a site as the end of
//! the line does. A `#` makes the rest of the line a comment, also what comes after a `;`.

/// The settings of one site, as they are written.
#[derive(Debug)]
pub(crate) struct Statement {
    /// The line of the text, from 1.
    pub(crate) line: usize,
    /// The mistake is in what comes before the settings.
    pub(crate) name: Result<String, &'static str>,
    settings: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Text(String),
    Equals,
    Comma,
    Semicolon,
    /// A `"` without another one in the line.
    OpenQuote,
}

const OPEN_QUOTE: &str = "a `\"` has no other one in its line";

pub(crate) fn statements(text: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for tokens in tokens(line).split(|token| *token == Token::Semicolon) {
            let Some((first, settings)) = tokens.split_first() else { continue };
            let name = match first {
                Token::Text(_) if settings.first() == Some(&Token::Equals) => {
                    Err("this begins with a setting; write the name of a locked function first")
                }
                Token::Text(name) => Ok(name.clone()),
                Token::OpenQuote => Err(OPEN_QUOTE),
                _ => Err("this begins with neither a name nor `#`"),
            };
            statements.push(Statement { line: index + 1, name, settings: settings.to_vec() });
        }
    }
    statements
}

impl Statement {
    /// The settings with their values.
    pub(crate) fn settings(&self) -> Result<Vec<(&str, &str)>, String> {
        let mut settings = Vec::new();
        let mut rest = &self.settings[..];
        loop {
            rest = match rest {
                [] => return Ok(settings),
                // Between settings, as in an attribute.
                [Token::Comma, rest @ ..] => rest,
                [Token::Text(option), Token::Equals, Token::Text(value), rest @ ..] => {
                    settings.push((option.as_str(), value.as_str()));
                    rest
                }
                [.., Token::OpenQuote] => return Err(OPEN_QUOTE.into()),
                [Token::Text(word), ..] => {
                    return Err(format!(
                        "{word:?} is not `setting=value`; a value with a blank or a comma needs quotes, such as `retry=\"5, 100ms..2s\"`"
                    ));
                }
                _ => return Err("there is a `=` without a setting before it".into()),
            };
        }
    }
}

fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, tail) = match first {
            '#' => break,
            '=' => (Token::Equals, &rest[1..]),
            ',' => (Token::Comma, &rest[1..]),
            ';' => (Token::Semicolon, &rest[1..]),
            '"' => match rest[1..].split_once('"') {
                Some((text, tail)) => (Token::Text(text.to_owned()), tail),
                None => (Token::OpenQuote, ""),
            },
            _ => {
                let ends = |c: char| c.is_whitespace() || ['#', '=', ',', ';', '"'].contains(&c);
                let (word, tail) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                (Token::Text(word.to_owned()), tail)
            }
        };
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}
