//! One option as it was written in an attribute: its value, and its location for errors about it.

use proc_macro2::TokenStream;
use syn::Expr;

use crate::literals::ungrouped;

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

pub(crate) fn value<T>(parsed: Option<Parsed<T>>) -> Option<T> {
    parsed?.value
}

pub(crate) fn note_mistake<T>(result: syn::Result<T>, mistakes: &mut Vec<syn::Error>) -> Option<T> {
    result.map_err(|mistake| mistakes.push(mistake)).ok()
}
