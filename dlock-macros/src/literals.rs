//! Literals and single words, taken out of an expression; whatever else it is, `None`.

use syn::ext::IdentExt;
use syn::{Expr, Lit, LitStr, UnOp};

use crate::suggest::{list, nearest};

/// Which of the words it is, bare or in quotes.
pub(crate) fn choice(value: &Expr, words: &[&str]) -> Result<usize, String> {
    let word = text(value).map(|text| text.value()).or_else(|| word(value)).ok_or_else(|| match value {
        _ if is_literal(value) => format!("expected {}", either(words)),
        _ => no_expression(&either(words)),
    })?;
    words.iter().position(|known| *known == word).ok_or_else(|| not_one_of(&word, words))
}

pub(crate) fn no_expression(expected: &str) -> String {
    format!("an expression is not allowed here: write {}", expected.trim_start_matches("expected "))
}

pub(crate) fn not_one_of(word: &str, words: &[&str]) -> String {
    match nearest(word, words.iter().copied()) {
        Some(near) => format!("`{word}` is not known; did you mean `{near}`? There is {}", either(words)),
        None => format!("`{word}` is not known; expected {}", either(words)),
    }
}

fn either(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or `{last}`", list(rest.iter().copied())),
        _ => list(words.iter().copied()),
    }
}

pub(crate) fn is_literal(value: &Expr) -> bool {
    match value {
        Expr::Lit(_) => true,
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_literal(&unary.expr),
        _ => false,
    }
}

pub(crate) fn text(value: &Expr) -> Option<LitStr> {
    match value {
        Expr::Lit(lit) if let Lit::Str(text) = &lit.lit => Some(text.clone()),
        _ => None,
    }
}

pub(crate) fn boolean(value: &Expr) -> Option<bool> {
    match value {
        Expr::Lit(lit) if let Lit::Bool(on) = &lit.lit => Some(on.value),
        _ => None,
    }
}

/// The digits of a whole number in base ten.
pub(crate) fn digits(value: &Expr) -> Option<&str> {
    match value {
        Expr::Lit(lit) if let Lit::Int(number) = &lit.lit => Some(number.base10_digits()),
        _ => None,
    }
}

pub(crate) fn number(value: &Expr) -> Result<Option<u32>, String> {
    digits(value).map(dlock_values::number).transpose()
}

/// A single name; `continue` is a keyword, so it is an expression of its own.
pub(crate) fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) => path.path.get_ident().map(|word| word.unraw().to_string()),
        Expr::Continue(jump) if jump.label.is_none() => Some("continue".into()),
        _ => None,
    }
}

/// `"permits(3)"` means the same as `permits(3)`.
pub(crate) fn unquoted(value: &Expr) -> Result<Expr, ()> {
    match text(value) {
        Some(text) => text.parse().map_err(|_| ()),
        None => Ok(value.clone()),
    }
}

/// A value that came through a `macro_rules!` fragment is wrapped in a group that nobody wrote.
pub(crate) fn ungrouped(mut value: &Expr) -> &Expr {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    value
}
