//! The options of the attribute: one row of a table each.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Expr, Ident, Lit, LitStr, Token};

use crate::duration;

/// One option: how it is written, what it means, and how its value is read.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference page, nothing else reads it"))]
struct Row {
    name: &'static str,
    forms: &'static str,
    default: &'static str,
    doc: &'static str,
    read: fn(&mut Args, &Expr) -> Result<(), String>,
}

const TABLE: &[Row] = &[
    Row {
        name: "key",
        forms: r#"`"stock:<id>"`"#,
        default: "required",
        doc: "The name of the lock; `<…>` puts in a parameter, a field of one, or a const generic; `<<` is a plain `<`.",
        read: |args, value| {
            args.key = Some(text(value).ok_or(r#"expected a string literal, such as `key = "stock:<id>"`"#)?);
            Ok(())
        },
    },
    Row {
        name: "ttl",
        forms: r#"`"30s"`, `"1m30s"`"#,
        default: "the registry's (30 s)",
        doc: "How long the lock outlives a process that died with it.",
        read: |args, value| {
            args.ttl = Some(span(value, time(value)?));
            Ok(())
        },
    },
    Row {
        name: "backend",
        forms: r#"`"redis"`, `path::TO_A_CONST`"#,
        default: "the registry's default",
        doc: "The name under which the store was installed.",
        read: |args, value| {
            args.backend = Some(backend(value)?);
            Ok(())
        },
    },
    Row {
        name: "wait",
        forms: r#"`"5s"`, `"none"`, `"forever"`"#,
        default: "the registry's (10 s)",
        doc: "How long to wait while somebody else holds the lock.",
        read: |args, value| {
            args.wait = Some(Wait::read(value)?);
            Ok(())
        },
    },
    Row {
        name: "renew",
        forms: r#"`true`, `false`, `"5s"`"#,
        default: "`true`: a third of the ttl",
        doc: "Whether the lock is renewed while the function runs, and how often.",
        read: |args, value| {
            args.renew = Some(span(value, Renew::read(value)?));
            Ok(())
        },
    },
];

/// Names that the grammar keeps for later, so that they get an honest answer instead of a guess.
#[rustfmt::skip]
const LATER: &[&str] = &["keys", "kind", "fair", "reentrant", "max_hold", "min_hold", "timeout", "once_per", "on_busy", "on_lost", "on_outage", "guard", "fence", "name", "crate"];

/// What was written, each value checked by itself.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Option<LitStr>,
    pub(crate) ttl: Option<Spanned<Duration>>,
    /// A string literal or a path.
    pub(crate) backend: Option<Expr>,
    pub(crate) wait: Option<Wait>,
    pub(crate) renew: Option<Spanned<Renew>>,
}

/// A value, and the tokens to point at when it does not fit to another one.
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) tokens: TokenStream,
}

pub(crate) enum Wait {
    None,
    UpTo(Duration),
    Forever,
}

pub(crate) enum Renew {
    Off,
    Auto,
    Every(Duration),
}

impl Args {
    /// Reads the whole attribute. A mistake in one option does not hide those in the others.
    pub(crate) fn parse(attribute: TokenStream, mistakes: &mut Vec<syn::Error>) -> Args {
        let mut args = Args::default();
        let mut seen: Vec<String> = Vec::new();
        for option in split_at_commas(attribute) {
            if let Err(mistake) = syn::parse2(option).and_then(|option| args.read(option, &mut seen)) {
                mistakes.push(mistake);
            }
        }
        if !seen.iter().any(|name| name == "key") {
            let text = r#"`key` is missing: the lock needs a name, such as `key = "stock:<id>"`"#;
            mistakes.push(syn::Error::new(Span::call_site(), text));
        }
        args
    }

    fn read(&mut self, option: OptionTokens, seen: &mut Vec<String>) -> syn::Result<()> {
        let OptionTokens { name, value } = option;
        let word = name.unraw().to_string();
        let Some(row) = TABLE.iter().find(|row| row.name == word) else {
            return Err(syn::Error::new(name.span(), unknown(&word)));
        };
        if seen.contains(&word) {
            return Err(syn::Error::new(name.span(), format!("`{word}` is given twice")));
        }
        seen.push(word);
        let Some(value) = value else {
            let text = format!("`{}` needs a value: {}", row.name, row.forms);
            return Err(syn::Error::new(name.span(), text));
        };
        let value = whole_expression.parse2(value)?;
        (row.read)(self, ungrouped(&value))
            .map_err(|why| syn::Error::new_spanned(&value, format!("`{}`: {why}", row.name)))
    }
}

/// `name = value`, the value not looked at yet.
struct OptionTokens {
    name: Ident,
    value: Option<TokenStream>,
}

impl Parse for OptionTokens {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error(r#"options are written `name = value`, such as `key = "stock:<id>"`"#));
        }
        let name = input.call(Ident::parse_any)?;
        let has_value = input.parse::<Option<Token![=]>>()?.is_some();
        let rest: TokenStream = input.parse()?;
        Ok(OptionTokens { name, value: (has_value && !rest.is_empty()).then_some(rest) })
    }
}

fn whole_expression(input: ParseStream) -> syn::Result<Expr> {
    let value = input.parse()?;
    if input.is_empty() { Ok(value) } else { Err(input.error("expected `,` before this")) }
}

/// Options are cut apart before they are parsed, so that a broken one leaves the others readable.
fn split_at_commas(attribute: TokenStream) -> Vec<TokenStream> {
    let mut options = vec![TokenStream::new()];
    for token in attribute {
        match (&token, options.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => options.push(TokenStream::new()),
            (_, Some(option)) => option.extend([token]),
            (_, None) => {}
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

fn unknown(word: &str) -> String {
    if LATER.contains(&word) {
        return format!("the option `{word}` is not supported in this version of dlock");
    }
    let names = TABLE.iter().map(|row| row.name);
    match nearest(word, names.clone()) {
        Some(near) => format!("unknown option `{word}`; did you mean `{near}`?"),
        None => format!("unknown option `{word}`; the options are {}", list(names)),
    }
}

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

fn backend(value: &Expr) -> Result<Expr, String> {
    let is_path = matches!(value, Expr::Path(path) if path.qself.is_none());
    match text(value).map(|text| text.value()) {
        Some(name) if name.is_empty() => Err("the name is empty".into()),
        Some(name) if name.chars().any(char::is_control) => Err("the name has a control character".into()),
        None if !is_path => {
            Err(r#"expected a name, such as `"redis"`, or the path of a `const` that holds one"#.into())
        }
        _ => Ok(value.clone()),
    }
}

impl Wait {
    fn read(value: &Expr) -> Result<Self, String> {
        match text(value).map(|text| text.value()).as_deref() {
            Some("none") => Ok(Wait::None),
            Some("forever") => Ok(Wait::Forever),
            _ => match time(value) {
                Ok(limit) => Ok(Wait::UpTo(limit)),
                Err(why) => Err(format!(r#"{why}; or write `"none"` or `"forever"`"#)),
            },
        }
    }
}

impl Renew {
    fn read(value: &Expr) -> Result<Self, String> {
        match value {
            Expr::Lit(lit) if let Lit::Bool(on) = &lit.lit => Ok(if on.value { Renew::Auto } else { Renew::Off }),
            _ => match time(value) {
                Ok(cadence) => Ok(Renew::Every(cadence)),
                Err(why) => Err(format!("{why}; or write `true` or `false`")),
            },
        }
    }
}

fn time(value: &Expr) -> Result<Duration, String> {
    match text(value) {
        Some(text) => duration::parse(&text.value()),
        None => Err(match value {
            Expr::Lit(lit) if let Lit::Int(number) = &lit.lit => {
                format!(r#"a number needs a unit, and quotes: write `"{}s"` for seconds"#, number.base10_digits())
            }
            _ => r#"expected a duration in quotes, such as `"30s"`"#.into(),
        }),
    }
}

fn text(value: &Expr) -> Option<LitStr> {
    match value {
        Expr::Lit(lit) if let Lit::Str(text) = &lit.lit => Some(text.clone()),
        _ => None,
    }
}

fn span<T>(tokens: &Expr, value: T) -> Spanned<T> {
    Spanned { value, tokens: tokens.to_token_stream() }
}

/// A value that came through a `macro_rules!` fragment is wrapped in a group that nobody wrote.
fn ungrouped(mut value: &Expr) -> &Expr {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    value
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
