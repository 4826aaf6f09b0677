//! Reads the options of an attribute by its table. A mistake in one option does not hide those in the others.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Ident, Token};

use crate::literals::{is_literal, text, ungrouped, unquoted, word};
use crate::suggest::{list, nearest};
use crate::table::{Args, AttributeSpec, OptionSpec};
use crate::written::{Location, Takes, Written};

/// Reads the whole attribute. A mistake in one option does not hide those in the others.
pub(crate) fn read(spec: &AttributeSpec, attribute: TokenStream, mistakes: &mut Vec<syn::Error>) -> Args {
    let mut reader = Reader { spec, args: Args::default(), seen: Vec::new(), meant: Vec::new(), mistakes };
    let options = |input: ParseStream| {
        while !input.is_empty() {
            reader.option(input);
        }
        Ok(())
    };
    // Parts that cannot be read are skipped and reported, so the parser itself does not fail.
    let _: syn::Result<()> = options.parse2(attribute);
    let Reader { args, seen, meant, mistakes, .. } = reader;
    for (names, text) in spec.required {
        // A misspelt option was reported already.
        if !names.iter().any(|name| seen.contains(name) || meant.contains(name)) {
            mistakes.push(syn::Error::new(Span::call_site(), text));
        }
    }
    args
}

struct Reader<'a> {
    spec: &'a AttributeSpec,
    args: Args,
    seen: Vec<&'static str>,
    /// The options that misspelt names probably meant.
    meant: Vec<&'static str>,
    mistakes: &'a mut Vec<syn::Error>,
}

impl Reader<'_> {
    /// Reads `name = value,` or a bare flag. Anything else there is a mistake.
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
            self.meant.extend(self.spec.table.first().map(|row| row.name));
            return Err(input.error(self.form()));
        }
        let name = input.call(Ident::parse_any)?;
        let given = input.parse::<Option<Token![=]>>()?.is_some();
        // The separators of other languages.
        let (has_colon, has_parens) = (!given && input.peek(Token![:]), !given && input.peek(syn::token::Paren));
        let separator = input.span();
        if has_colon {
            input.parse::<Token![:]>()?;
        }
        let ends = |input: ParseStream| input.is_empty() || input.peek(Token![,]);
        let mutable = if given { input.parse::<Option<Token![mut]>>()? } else { None };
        let value = if (given || has_colon || has_parens) && !ends(input) { Some(input.parse::<Expr>()) } else { None };
        if matches!(value, Some(Ok(_))) && !ends(input) {
            self.mistakes.push(input.error("expected `,` before this"));
        }
        let is_bare = !given && value.is_none() && ends(input);

        let word = name.unraw().to_string();
        let Some(row) = self.spec.table.iter().find(|row| row.name == word) else {
            let meant = self.meant_by(&word);
            self.meant.extend(meant);
            self.mention(meant, value.as_ref());
            if let Some(meant) = meant {
                self.mark_present(meant, &name);
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
            value if has_colon || has_parens => {
                let text = format!("write `=` here, as in `{}`", example(row));
                (value.and_then(Result::ok).filter(|_| has_colon), Some(syn::Error::new(separator, text)))
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
            None if is_bare && row.flag => (Some(syn::parse_quote_spanned!(name.span()=> true)), None),
            None => {
                let text = format!("`{word}` needs a value: {}", row.forms);
                (None, Some(syn::Error::new(name.span(), text)))
            }
        };
        self.mistakes.extend(wrong);
        let tokens = value.as_ref().map_or_else(|| name.to_token_stream(), ToTokens::to_token_stream);
        let written = Written { location: Location { word: row.name, tokens, order }, value };
        (row.read)(&mut self.args, &written).map_err(|why| written.location.mistake(format!("`{word}`: {why}")))
    }

    /// A misspelt option counts as given: options that do not fit to it are reported at once, and it is not missing.
    fn mark_present(&mut self, option: &'static str, name: &Ident) {
        let row = self.spec.table.iter().find(|row| row.name == option);
        if let Some(row) = row.filter(|row| !self.seen.contains(&row.name)) {
            let location = Location { word: row.name, tokens: name.to_token_stream(), order: self.seen.len() };
            // Without a value nothing is wrong with it.
            let _: Result<(), String> = (row.read)(&mut self.args, &Written { location, value: None });
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
            _ => {
                let row = self.spec.table.iter().find(|row| Some(row.name) == option);
                let takes = row.map_or(Takes::Words, |row| row.takes);
                self.args.mentioned.extend(mentioned(option, takes, value));
            }
        }
    }

    fn form(&self) -> String {
        match self.spec.table.first() {
            Some(row) => format!("options are written `name = value`, as in `{}`", example(row)),
            None => "options are written `name = value`".into(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.spec.table.iter().map(|row| row.name)
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

/// The items of the program that a value names, as far as that can be told. Without this, the compiler would call an
/// import unused that only a broken attribute needs. A misspelt word of an option is left out, or the compiler would
/// look for it.
fn mentioned(option: Option<&str>, takes: Takes, value: &Expr) -> Vec<Expr> {
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
        _ if takes != Takes::Words && !is_literal(&value) && word(&value).is_none() => vec![value],
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
fn example(row: &OptionSpec) -> String {
    let location = if row.flag { 3 } else { 1 };
    let form = row.forms.split('`').nth(location).unwrap_or("…");
    format!("{} = {form}", row.name)
}

/// The names of our options in other libraries, or in other attributes of ours.
#[rustfmt::skip]
const MEANT: &[(&str, &str)] = &[
    ("at_most", "ttl"), ("lease", "ttl"), ("lease_time", "ttl"), ("expire", "ttl"), ("expiry", "ttl"), ("lock_at_most_for", "at_most"),
    ("at_least", "min_hold"), ("lock_at_least_for", "at_least"), ("wait_time", "wait"), ("wait_timeout", "wait"), ("acquire_timeout", "wait"),
    ("auto_renew", "renew"), ("watchdog", "renew"), ("store", "backend"), ("redis", "backend"), ("shared", "mode"), ("kind", "mode"),
    ("retries", "retry"), ("max_retries", "retries"), ("id", "name"), ("ttl", "at_most"), ("min_hold", "at_least"), ("key", "name"), ("fallback", "on_busy"),
];

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
