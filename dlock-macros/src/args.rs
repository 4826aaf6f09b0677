//! The options that were written in an attribute: a field for each. `reader` fills them, by the rows of `table`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Expr, Ident, LitStr, Path};

use crate::key_values::Key;
use crate::literals::ungrouped;
use crate::values::{Backoff, Cohort, Given, Mode, OnBusy, OnLost, Renew, Retry, Wait};

/// An attribute: its name and what can be written in it.
pub(crate) struct AttributeSpec {
    pub(crate) attribute: &'static str,
    pub(crate) table: &'static [OptionSpec],
    /// One option of each group must be there. Otherwise the text is the mistake.
    pub(crate) required: &'static [(&'static [&'static str], &'static str)],
    /// Fills in the options that the attribute implies.
    pub(crate) complete: fn(&mut Args),
    /// The reason why a function must not only make the work and return it.
    pub(crate) too_early: &'static str,
}

/// One option: how it is written, what it means, and how its value is read.
#[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference page, nothing else reads it"))]
pub(crate) struct OptionSpec {
    pub(crate) name: &'static str,
    pub(crate) forms: &'static str,
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    /// Whether it may be written without a value.
    pub(crate) flag: bool,
    /// The kinds of values that it takes, beside literals and words.
    pub(crate) takes: Takes,
    /// The value of the option's field in the static of the call; `None` if the option was not given, or has no such field.
    pub(crate) field: fn(&Args, &TokenStream) -> Option<TokenStream>,
    pub(crate) read: fn(&mut Args, &Written) -> Result<(), String>,
}

/// The kinds of values of an option, beside literals and words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing: `crate` is a path, `guard` and `fence` are names, and words are words.
    Words,
    /// A constant that the compiler works out.
    Constants,
    /// Any expression, worked out by each call.
    Expressions,
}

/// One option, as it was written.
pub(crate) struct Written {
    pub(crate) location: Location,
    /// `None` if a mistake in it is reported already.
    pub(crate) value: Option<Expr>,
}

/// An option that was given, and its location. It also counts as given if its value cannot be read.
pub(crate) struct Parsed<T> {
    pub(crate) value: Option<T>,
    pub(crate) location: Location,
}

/// Where an option is written in the attribute, for errors about it, and its name.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) word: &'static str,
    pub(crate) tokens: TokenStream,
    pub(crate) order: usize,
}

#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Option<Parsed<Key>>,
    pub(crate) keys: Option<Parsed<Vec<LitStr>>>,
    pub(crate) ttl: Option<Parsed<Given<Duration>>>,
    pub(crate) wait: Option<Parsed<Given<Wait>>>,
    pub(crate) attempts: Option<Parsed<Given<u32>>>,
    pub(crate) backoff: Option<Parsed<Backoff>>,
    pub(crate) max_waiters: Option<Parsed<Given<u32>>>,
    pub(crate) backend: Option<Parsed<Given<String>>>,
    pub(crate) mode: Option<Parsed<Mode>>,
    pub(crate) fair: Option<Parsed<bool>>,
    pub(crate) cohort: Option<Parsed<Option<Cohort>>>,
    pub(crate) reentrant: Option<Parsed<bool>>,
    pub(crate) renew: Option<Parsed<Renew>>,
    pub(crate) max_hold: Option<Parsed<Given<Duration>>>,
    pub(crate) timeout: Option<Parsed<Given<Duration>>>,
    pub(crate) min_hold: Option<Parsed<Given<Duration>>>,
    pub(crate) once_per: Option<Parsed<Given<Duration>>>,
    pub(crate) offset: Option<Parsed<Given<Duration>>>,
    pub(crate) rerun: Option<Parsed<()>>,
    pub(crate) record: bool,
    pub(crate) on_busy: Option<Parsed<OnBusy>>,
    pub(crate) on_lost: Option<Parsed<OnLost>>,
    pub(crate) on_outage: Option<Parsed<bool>>,
    pub(crate) retry: Option<Parsed<Retry>>,
    pub(crate) guard: Option<Parsed<Ident>>,
    pub(crate) fence: Option<Parsed<Ident>>,
    pub(crate) name: Option<Parsed<String>>,
    pub(crate) krate: Option<Parsed<Path>>,
    pub(crate) retries: Option<Parsed<Given<u32>>>,
    /// The items of the program that the values name, also of values that could not be read.
    pub(crate) mentioned: Vec<Expr>,
    /// The names that the body uses, by option, also where the value could not be read.
    pub(crate) in_body: Vec<(&'static str, Ident)>,
}

impl Written {
    pub(crate) fn set<T>(
        &self,
        slot: &mut Option<Parsed<T>>,
        read: impl Fn(&Expr) -> Result<T, String>,
    ) -> Result<(), String> {
        self.set_what_can_be_read(slot, |value| {
            read(value).map_or_else(|why| (None, Err(why)), |value| (Some(value), Ok(())))
        })
    }

    pub(crate) fn set_what_can_be_read<T>(
        &self,
        slot: &mut Option<Parsed<T>>,
        read: impl Fn(&Expr) -> (Option<T>, Result<(), String>),
    ) -> Result<(), String> {
        let (value, result) = self.value.as_ref().map_or((None, Ok(())), |value| read(ungrouped(value)));
        *slot = Some(Parsed { value, location: self.location.clone() });
        result
    }
}

/// The value of an option, if it was given and could be read.
pub(crate) fn parsed<T>(slot: &Option<Parsed<T>>) -> Option<&T> {
    slot.as_ref()?.value.as_ref()
}

impl<T> Parsed<T> {
    /// A value that the attribute implies.
    pub(crate) fn implied(word: &'static str, value: T) -> Self {
        Parsed { value: Some(value), location: Location { word, tokens: TokenStream::new(), order: 0 } }
    }
}

impl Location {
    /// Of two options that do not fit together, the one that was written later is reported.
    pub(crate) fn later<'a>(&'a self, other: &'a Location) -> &'a Location {
        if self.order > other.order { self } else { other }
    }

    pub(crate) fn mistake(&self, text: impl std::fmt::Display) -> syn::Error {
        syn::Error::new_spanned(&self.tokens, text)
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
    pub(crate) fn in_body<'a>(&'a self, parsed: Option<&'a Parsed<Ident>>) -> Option<(&'a Location, &'a Ident)> {
        let location = &parsed?.location;
        let (_, name) = self.in_body.iter().find(|(option, _)| *option == location.word)?;
        Some((location, name))
    }

    pub(crate) fn key_location(&self) -> Option<&Location> {
        self.key.as_ref().map(|key| &key.location).or(self.keys.as_ref().map(|keys| &keys.location))
    }
}
