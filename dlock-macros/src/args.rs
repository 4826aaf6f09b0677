//! What was written in the attribute, each value checked by itself. The options are in `table`, their values in `values`.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Ident, LitStr, Path, Token};

use crate::key_values::Key;
use crate::literals::{is_literal, text, ungrouped, unquoted, word};
use crate::table::takes_expressions;
use crate::values::{Backoff, Cohort, Given, Mode, OnBusy, OnLost, Renew, Retry, Wait};

/// An attribute: its name and what can be written in it.
pub(crate) struct Dialect {
    pub(crate) attribute: &'static str,
    pub(crate) table: &'static [Row],
    /// One option of each group must be there; else the text is the mistake.
    pub(crate) required: &'static [(&'static [&'static str], &'static str)],
    /// What the attribute means without saying it.
    pub(crate) complete: fn(&mut Args),
    /// What would be wrong with a function that only makes the work and returns it.
    pub(crate) too_early: &'static str,
}

/// One option: how it is written, what it means, and how its value is read.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference page, nothing else reads it"))]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) forms: &'static str,
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    /// May it stand without a value?
    pub(crate) flag: bool,
    pub(crate) read: fn(&mut Args, &Written) -> Result<(), String>,
}

/// One option, as it was written.
pub(crate) struct Written {
    place: Place,
    /// Nothing where that is told already.
    value: Option<Expr>,
}

/// That an option is there, and where: it is, also where its value cannot be read.
pub(crate) struct Said<T> {
    pub(crate) value: Option<T>,
    pub(crate) place: Place,
}

/// What to point at, and to call it, when a value does not fit to another one.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) word: &'static str,
    pub(crate) tokens: TokenStream,
    order: usize,
}

#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Option<Said<Key>>,
    pub(crate) keys: Option<Said<Vec<LitStr>>>,
    pub(crate) ttl: Option<Said<Given<Duration>>>,
    pub(crate) wait: Option<Said<Given<Wait>>>,
    pub(crate) attempts: Option<Said<Given<u32>>>,
    pub(crate) backoff: Option<Said<Backoff>>,
    pub(crate) max_waiters: Option<Said<Given<u32>>>,
    pub(crate) backend: Option<Said<Given<String>>>,
    pub(crate) mode: Option<Said<Mode>>,
    pub(crate) fair: Option<Said<bool>>,
    pub(crate) cohort: Option<Said<Option<Cohort>>>,
    pub(crate) reentrant: Option<Said<bool>>,
    pub(crate) renew: Option<Said<Renew>>,
    pub(crate) max_hold: Option<Said<Given<Duration>>>,
    pub(crate) timeout: Option<Said<Given<Duration>>>,
    pub(crate) min_hold: Option<Said<Given<Duration>>>,
    pub(crate) once_per: Option<Said<Given<Duration>>>,
    pub(crate) offset: Option<Said<Given<Duration>>>,
    pub(crate) rerun: Option<Said<()>>,
    pub(crate) record: bool,
    pub(crate) on_busy: Option<Said<OnBusy>>,
    pub(crate) on_lost: Option<Said<OnLost>>,
    pub(crate) on_outage: Option<Said<bool>>,
    pub(crate) retry: Option<Said<Retry>>,
    pub(crate) guard: Option<Said<Ident>>,
    pub(crate) fence: Option<Said<Ident>>,
    pub(crate) name: Option<Said<String>>,
    pub(crate) krate: Option<Said<Path>>,
    pub(crate) retries: Option<Said<Given<u32>>>,
    /// What of the program the values name, also those that could not be read.
    pub(crate) mentioned: Vec<Expr>,
    /// What the body expects to see, by option, also where that could not be read.
    pub(crate) in_body: Vec<(&'static str, Ident)>,
}

impl Written {
    pub(crate) fn set<T>(
        &self,
        slot: &mut Option<Said<T>>,
        read: impl Fn(&Expr) -> Result<T, String>,
    ) -> Result<(), String> {
        self.set_what_can_be_read(slot, |value| {
            read(value).map_or_else(|why| (None, Err(why)), |value| (Some(value), Ok(())))
        })
    }

    pub(crate) fn set_what_can_be_read<T>(
        &self,
        slot: &mut Option<Said<T>>,
        read: impl Fn(&Expr) -> (Option<T>, Result<(), String>),
    ) -> Result<(), String> {
        let (value, all) = self.value.as_ref().map_or((None, Ok(())), |value| read(ungrouped(value)));
        *slot = Some(Said { value, place: self.place.clone() });
        all
    }
}

impl<T> Said<T> {
    /// What the attribute means without saying it.
    pub(crate) fn implied(word: &'static str, value: T) -> Self {
        Said { value: Some(value), place: Place { word, tokens: TokenStream::new(), order: 0 } }
    }
}

impl Place {
    /// Of two that do not fit together, the one that was written later is wrong.
    pub(crate) fn later<'a>(&'a self, other: &'a Place) -> &'a Place {
        if self.order > other.order { self } else { other }
    }

    pub(crate) fn mistake(&self, text: impl std::fmt::Display) -> syn::Error {
        syn::Error::new_spanned(&self.tokens, text)
    }
}

impl Args {
    /// Reads the whole attribute. A mistake in one option does not hide those in the others.
    pub(crate) fn parse(dialect: &Dialect, attribute: TokenStream, mistakes: &mut Vec<syn::Error>) -> Args {
        let mut reader = Reader { dialect, args: Args::default(), seen: Vec::new(), meant: Vec::new(), mistakes };
        let read = |input: ParseStream| {
            while !input.is_empty() {
                reader.option(input);
            }
            Ok(())
        };
        // What cannot be read is skipped and told, so the parser itself does not fail.
        let _: syn::Result<()> = read.parse2(attribute);
        let Reader { args, seen, meant, mistakes, .. } = reader;
        for (names, text) in dialect.required {
            // What was meant and misspelt was told already.
            if !names.iter().any(|name| seen.contains(name) || meant.contains(name)) {
                mistakes.push(syn::Error::new(Span::call_site(), text));
            }
        }
        args
    }
}

impl Args {
    /// The keys as they were written, to be compared.
    pub(crate) fn key_texts(&self) -> Option<Vec<String>> {
        match (&self.key, &self.keys) {
            (Some(key), _) => match key.value.as_ref()? {
                Key::Template(template) => Some(vec![template.value()]),
                Key::Computed(key) => Some(vec![key.to_token_stream().to_string()]),
            },
            (None, keys) => Some(keys.as_ref()?.value.as_ref()?.iter().map(LitStr::value).collect()),
        }
    }

    /// The guard's or the token's name in the body, as far as it can be told.
    pub(crate) fn in_body<'a>(&'a self, said: Option<&'a Said<Ident>>) -> Option<(&'a Place, &'a Ident)> {
        let place = &said?.place;
        let (_, name) = self.in_body.iter().find(|(option, _)| *option == place.word)?;
        Some((place, name))
    }

    pub(crate) fn key_place(&self) -> Option<&Place> {
        self.key.as_ref().map(|key| &key.place).or(self.keys.as_ref().map(|keys| &keys.place))
    }
}

struct Reader<'a> {
    dialect: &'a Dialect,
    args: Args,
    seen: Vec<&'static str>,
    /// Those that were probably meant by something else.
    meant: Vec<&'static str>,
    mistakes: &'a mut Vec<syn::Error>,
}

impl Reader<'_> {
    /// Reads `name = value,` or a bare flag, and whatever stands there instead.
    fn option(&mut self, input: ParseStream) {
        if let Err(mistake) = self.name_and_value(input) {
            self.mistakes.push(mistake);
        }
        while !input.is_empty() && !input.peek(Token![,]) {
            let _: syn::Result<proc_macro2::TokenTree> = input.parse();
        }
        let _: syn::Result<Option<Token![,]>> = input.parse();
    }

    fn name_and_value(&mut self, input: ParseStream) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            self.meant.extend(self.dialect.table.first().map(|row| row.name));
            return Err(input.error(self.form()));
        }
        let name = input.call(Ident::parse_any)?;
        let given = input.parse::<Option<Token![=]>>()?.is_some();
        // What other languages write instead of it.
        let (colon, called) = (!given && input.peek(Token![:]), !given && input.peek(syn::token::Paren));
        let instead = input.span();
        if colon {
            input.parse::<Token![:]>()?;
        }
        let ends = |input: ParseStream| input.is_empty() || input.peek(Token![,]);
        let mutable = if given { input.parse::<Option<Token![mut]>>()? } else { None };
        let value = if (given || colon || called) && !ends(input) { Some(input.parse::<Expr>()) } else { None };
        if matches!(value, Some(Ok(_))) && !ends(input) {
            self.mistakes.push(input.error("expected `,` before this"));
        }
        let bare = !given && value.is_none() && ends(input);

        let word = name.unraw().to_string();
        let Some(row) = self.dialect.table.iter().find(|row| row.name == word) else {
            let meant = self.meant_by(&word);
            self.meant.extend(meant);
            self.mention(meant, value.as_ref());
            if let Some(meant) = meant {
                self.is_there(meant, &name);
            }
            return Err(syn::Error::new(name.span(), self.unknown(&word, meant)));
        };
        self.mention(Some(row.name), value.as_ref());
        if self.seen.contains(&row.name) {
            return Err(syn::Error::new(name.span(), format!("`{word}` is given twice")));
        }
        let order = self.seen.len();
        self.seen.push(row.name);
        let (value, wrong) = match value {
            value if colon || called => {
                let text = format!("write `=` here, as in `{}`", example(row));
                (value.and_then(Result::ok).filter(|_| colon), Some(syn::Error::new(instead, text)))
            }
            Some(Ok(value)) => {
                let wrong = mutable.map(|mutable| {
                    let text = format!("`{word}`: leave out `mut`: write `{word} = {}`", value.to_token_stream());
                    syn::Error::new(mutable.span, text)
                });
                (Some(value), wrong)
            }
            Some(Err(mistake)) => {
                let text = format!("`{word}`: {mistake}; write {}", row.forms);
                (None, Some(syn::Error::new(mistake.span(), text)))
            }
            None if bare && row.flag => (Some(syn::parse_quote_spanned!(name.span()=> true)), None),
            None => {
                let text = format!("`{word}` needs a value: {}", row.forms);
                (None, Some(syn::Error::new(name.span(), text)))
            }
        };
        self.mistakes.extend(wrong);
        let tokens = value.as_ref().map_or_else(|| name.to_token_stream(), ToTokens::to_token_stream);
        let written = Written { place: Place { word: row.name, tokens, order }, value };
        (row.read)(&mut self.args, &written).map_err(|why| written.place.mistake(format!("`{word}`: {why}")))
    }

    /// A misspelt option is there too: what does not fit to it is told at once, and it is not asked for.
    fn is_there(&mut self, option: &'static str, name: &Ident) {
        let row = self.dialect.table.iter().find(|row| row.name == option);
        if let Some(row) = row.filter(|row| !self.seen.contains(&row.name)) {
            let place = Place { word: row.name, tokens: name.to_token_stream(), order: self.seen.len() };
            // Without a value nothing is wrong with it.
            let _: Result<(), String> = (row.read)(&mut self.args, &Written { place, value: None });
        }
    }

    fn mention(&mut self, option: Option<&'static str>, value: Option<&syn::Result<Expr>>) {
        let Some(Ok(value)) = value else { return };
        let value = ungrouped(value);
        let name = match value {
            Expr::Paren(inner) => name_in(&inner.expr),
            value => name_in(value),
        };
        match option {
            Some(option @ ("guard" | "fence")) => self.args.in_body.extend(name.map(|name| (option, name))),
            _ => self.args.mentioned.extend(mentioned(option, value)),
        }
    }

    fn form(&self) -> String {
        match self.dialect.table.first() {
            Some(row) => format!("options are written `name = value`, as in `{}`", example(row)),
            None => "options are written `name = value`".into(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.dialect.table.iter().map(|row| row.name)
    }

    fn meant_by(&self, word: &str) -> Option<&'static str> {
        let mut meant = MEANT.iter().filter(|(other, _)| *other == word).map(|(_, name)| *name);
        meant.find(|name| self.names().any(|known| known == *name)).or_else(|| nearest(word, self.names()))
    }

    fn unknown(&self, word: &str, meant: Option<&str>) -> String {
        match meant {
            _ if ["read", "write", "exclusive"].contains(&word) && self.names().any(|name| name == "mode") => {
                format!("unknown option `{word}`; write `mode = {word}`")
            }
            _ if word == "permits" && self.names().any(|name| name == "mode") => {
                "unknown option `permits`; write `mode = permits(3)`".into()
            }
            Some(near) => format!("unknown option `{word}`; did you mean `{near}`?"),
            None => format!("unknown option `{word}`; the options are {}", list(self.names())),
        }
    }
}

/// What of a value are names of the program, as far as that can be told: an import that only a broken attribute needs
/// shall not be called unused, and a word that was meant as one of ours shall not be sought.
fn mentioned(option: Option<&str>, value: &Expr) -> Vec<Expr> {
    let Ok(value) = unquoted(value) else { return Vec::new() };
    let constant = |value: &Expr| match value {
        Expr::Path(path) => {
            path.path.get_ident().is_none_or(|name| name.to_string().chars().all(|c| !c.is_lowercase()))
        }
        _ => false,
    };
    let called = match &value {
        Expr::Call(call) => word(&call.func).map(|word| (word, call)),
        _ => None,
    };
    match (option, called) {
        (Some("on_busy"), Some((word, call))) if word == "call" => {
            call.args.iter().filter(|path| matches!(path, Expr::Path(_))).cloned().collect()
        }
        (Some("mode"), Some((word, call))) if word == "permits" => {
            call.args.iter().filter(|value| constant(value)).cloned().collect()
        }
        (Some("crate" | "mode" | "on_busy" | "on_lost" | "on_outage" | "rerun"), _) => Vec::new(),
        _ if constant(&value) => vec![value],
        (Some(option), _) if takes_expressions(option) && !is_literal(&value) && word(&value).is_none() => vec![value],
        _ => Vec::new(),
    }
}

/// A name for the body, also in quotes, where it is a mistake.
fn name_in(value: &Expr) -> Option<Ident> {
    let name: Option<Ident> = match value {
        Expr::Path(path) => path.path.get_ident().filter(|name| *name != "self").cloned(),
        value => text(value)?.parse().ok(),
    };
    // Others would be no names in a pattern.
    name.filter(|name| !name.unraw().to_string().starts_with(char::is_uppercase))
}

/// The first of the forms that is a value, with the name.
fn example(row: &Row) -> String {
    let place = if row.flag { 3 } else { 1 };
    let form = row.forms.split('`').nth(place).unwrap_or("…");
    format!("{} = {form}", row.name)
}

/// What other libraries call our options, or other attributes of ours.
#[rustfmt::skip]
const MEANT: &[(&str, &str)] = &[
    ("at_most", "ttl"), ("lease", "ttl"), ("lease_time", "ttl"), ("expire", "ttl"), ("expiry", "ttl"), ("lock_at_most_for", "at_most"),
    ("at_least", "min_hold"), ("lock_at_least_for", "at_least"), ("wait_time", "wait"), ("wait_timeout", "wait"), ("acquire_timeout", "wait"),
    ("auto_renew", "renew"), ("watchdog", "renew"), ("store", "backend"), ("redis", "backend"), ("shared", "mode"), ("kind", "mode"),
    ("retries", "retry"), ("max_retries", "retries"), ("id", "name"), ("ttl", "at_most"), ("min_hold", "at_least"), ("key", "name"), ("fallback", "on_busy"),
];

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

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
