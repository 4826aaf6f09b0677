//! What was written in an attribute: a slot for each option. `reader` fills them, by the rows of `table`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Expr, Ident, LitStr, Path};

use crate::key_values::Key;
use crate::literals::ungrouped;
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
    /// What its value may be, beside literals and words.
    pub(crate) takes: Takes,
    /// The value of the option's field in the static of the call; `None` if the option was not given, or has no such field.
    pub(crate) field: fn(&Args, &TokenStream) -> Option<TokenStream>,
    pub(crate) read: fn(&mut Args, &Written) -> Result<(), String>,
}

/// What a value may be, beside literals and words.
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
    pub(crate) place: Place,
    /// Nothing where that is told already.
    pub(crate) value: Option<Expr>,
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
    pub(crate) order: usize,
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

/// The value of an option, if it was given and could be read.
pub(crate) fn said<T>(slot: &Option<Said<T>>) -> Option<&T> {
    slot.as_ref()?.value.as_ref()
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
