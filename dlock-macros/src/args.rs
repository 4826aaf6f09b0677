//! The options of the attribute: one row of a table each.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Expr, Ident, Lit, LitStr, Path, Token};

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
            args.backend = Some(Backend::read(value)?);
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
    pub(crate) backend: Option<Backend>,
    pub(crate) wait: Option<Wait>,
    pub(crate) renew: Option<Spanned<Renew>>,
}

/// A value, and the tokens to point at when it does not fit to another one.
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) tokens: TokenStream,
}

pub(crate) enum Backend {
    Name(LitStr),
    Const(Path),
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

impl Backend {
    fn read(value: &Expr) -> Result<Self, String> {
        if let Expr::Path(path) = value
            && path.qself.is_none()
        {
            return Ok(Backend::Const(path.path.clone()));
        }
        let name =
            text(value).ok_or(r#"expected a name, such as `"redis"`, or the path of a `const` that holds one"#)?;
        match name.value() {
            text if text.is_empty() => Err("the name is empty".into()),
            text if text.chars().any(char::is_control) => Err("the name has a control character".into()),
            _ => Ok(Backend::Name(name)),
        }
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
mod tests {
    use super::*;

    fn read(attribute: &str) -> Result<Args, Vec<String>> {
        let mut mistakes = Vec::new();
        let args = Args::parse(attribute.parse().expect("tokens"), &mut mistakes);
        if mistakes.is_empty() { Ok(args) } else { Err(mistakes.iter().map(ToString::to_string).collect()) }
    }

    fn mistake(attribute: &str) -> String {
        let found = read(attribute).err().expect(attribute);
        assert_eq!(found.len(), 1, "{attribute}: {found:?}");
        found.concat()
    }

    /// The option reference, written from the table.
    fn reference() -> String {
        let mut page = String::from(
            "# Options of `#[distributed_lock]`\n\n\
             This page is written from the table in `dlock-macros/src/args.rs`; a test keeps the two the same.\n\n\
             | option | forms | default | meaning |\n| --- | --- | --- | --- |\n",
        );
        for Row { name, forms, default, doc, .. } in TABLE {
            page += &format!("| `{name}` | {forms} | {default} | {doc} |\n");
        }
        page
    }

    #[test]
    fn the_reference_page_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/options.md");
        if std::env::var_os("DLOCK_BLESS").is_some() {
            std::fs::write(&path, reference()).expect("write the page");
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(page, reference(), "docs/options.md is stale: run this test with DLOCK_BLESS=1");
    }

    #[test]
    fn every_option_is_read() {
        let args =
            read(r#"key = "a", ttl = "30s", backend = "redis", wait = "5s", renew = "5s","#).ok().expect("valid");
        assert_eq!(args.key.expect("key").value(), "a");
        assert_eq!(args.ttl.expect("ttl").value, Duration::from_secs(30));
        assert!(matches!(args.backend, Some(Backend::Name(name)) if name.value() == "redis"));
        assert!(matches!(args.wait, Some(Wait::UpTo(limit)) if limit == Duration::from_secs(5)));
        assert!(matches!(args.renew.expect("renew").value, Renew::Every(every) if every == Duration::from_secs(5)));
    }

    #[test]
    fn every_other_form_is_read() {
        let args = read(r#"key = "a", wait = "none", renew = true, backend = names::MAIN"#).ok().expect("valid");
        assert!(matches!(args.wait, Some(Wait::None)));
        assert!(matches!(args.renew.expect("renew").value, Renew::Auto));
        assert!(matches!(args.backend, Some(Backend::Const(_))));
        let args = read(r#"key = "a", wait = "forever", renew = false"#).ok().expect("valid");
        assert!(matches!(args.wait, Some(Wait::Forever)));
        assert!(matches!(args.renew.expect("renew").value, Renew::Off));
    }

    #[test]
    fn one_mistake_has_one_message() {
        for (attribute, part) in [
            ("", "`key` is missing"),
            ("key = 1", "`key`: expected a string literal"),
            ("key", "`key` needs a value"),
            ("key =", "`key` needs a value"),
            (r#"key("a")"#, "`key` needs a value"),
            (r#"key = "a", key = "b""#, "`key` is given twice"),
            (r#"key = "a", tll = "1s""#, "unknown option `tll`; did you mean `ttl`?"),
            (r#"key = "a", colour = "red""#, "unknown option `colour`; the options are `key`, `ttl`"),
            (r#"key = "a", on_lost = "abort""#, "`on_lost` is not supported in this version"),
            (r#"key = "a", crate = lk"#, "`crate` is not supported in this version"),
            (r#"key = "a", ttl = 30"#, r#"`ttl`: a number needs a unit, and quotes: write `"30s"` for seconds"#),
            (r#"key = "a", ttl = 30s"#, r#"write `"30s"` for seconds"#),
            (r#"key = "a", ttl = soon"#, "`ttl`: expected a duration in quotes"),
            (r#"key = "a", ttl = "30""#, "`ttl`: `30` is not a duration"),
            (r#"key = "a", wait = "never""#, r#"or write `"none"` or `"forever"`"#),
            (r#"key = "a", wait = "0s""#, r#"or write `"none"` or `"forever"`"#),
            (r#"key = "a", renew = "often""#, "or write `true` or `false`"),
            (r#"key = "a", backend = """#, "`backend`: the name is empty"),
            (r#"key = "a", backend = "a\nb""#, "`backend`: the name has a control character"),
            (r#"key = "a", backend = 5"#, "`backend`: expected a name"),
            (r#"key = "a" ttl = "30s""#, "expected `,`"),
        ] {
            let found = mistake(attribute);
            assert!(found.contains(part), "{attribute}: {found}");
        }
    }

    #[test]
    fn all_mistakes_are_found_at_once() {
        let found =
            read(r#""stock", tll = "1s", ttl = 30, renew = 5, wait = "x", backend = """#).err().expect("mistakes");
        assert_eq!(found.len(), 7, "{found:#?}");
    }
}
