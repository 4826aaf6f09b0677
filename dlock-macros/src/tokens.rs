//! Values of options as code.

use std::time::Duration;

use dlock_values::Pauses;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use crate::spans::{located_at, moved_to};
use crate::values::{Cohort, Given, Mode, OnLost, Renew, Retry, Wait};

pub(crate) fn wait(wait: &Wait, rt: &TokenStream) -> TokenStream {
    match wait {
        Wait::None => quote!(#rt::Wait::None),
        Wait::Forever => quote!(#rt::Wait::Forever),
        Wait::UpTo(limit) => {
            let limit = duration(*limit);
            quote!(#rt::Wait::UpTo(#limit))
        }
    }
}

pub(crate) fn renew(renew: &Renew, rt: &TokenStream) -> TokenStream {
    match renew {
        Renew::Off => quote!(#rt::Renew::Off),
        Renew::Auto => quote!(#rt::Renew::Auto),
        Renew::Every(cadence) => {
            let cadence = fixed_time(cadence, rt);
            quote!(#rt::Renew::Every(#cadence))
        }
    }
}

pub(crate) fn backoff((from, to): Pauses, rt: &TokenStream) -> TokenStream {
    let (from, to) = (duration(from), duration(to));
    quote!(#rt::Backoff::new(#from, #to))
}

pub(crate) fn retry(retry: &Retry, rt: &TokenStream) -> TokenStream {
    let (times, backoff) = (retry.times, option(retry.pauses.map(|pauses| backoff(pauses, rt))));
    quote!(#rt::Retry { times: #times, backoff: #backoff })
}

pub(crate) fn mode(mode: &Mode, rt: &TokenStream) -> TokenStream {
    match mode {
        Mode::Exclusive => quote!(#rt::Mode::Exclusive),
        Mode::Read => quote!(#rt::Mode::Read),
        Mode::Write => quote!(#rt::Mode::Write),
        Mode::Permits(permits) => {
            let permits = fixed_count(permits, rt);
            quote!(#rt::Mode::permits(#permits))
        }
    }
}

pub(crate) fn cohort(cohort: &Cohort, rt: &TokenStream) -> TokenStream {
    let (passes, span) = (cohort.passes, option(cohort.span.map(duration)));
    quote!(#rt::Cohort { passes: #passes, span: #span })
}

pub(crate) fn on_lost(on_lost: OnLost, rt: &TokenStream) -> TokenStream {
    match on_lost {
        OnLost::Cancel => quote!(#rt::OnLost::Cancel),
        OnLost::Continue => quote!(#rt::OnLost::Continue),
    }
}

/// Wraps the value in a `const` block: for a static alone, the compiler would advise to make it lazy. A path needs no block, because it
/// names a constant already.
pub(crate) fn in_const(value: &Expr, checked: &TokenStream) -> TokenStream {
    match value {
        Expr::Path(_) => checked.clone(),
        _ => quote_spanned!(located_at(value.span())=> const { #checked }),
    }
}

/// Checked by the compiler, and reported where it is written.
pub(crate) fn fixed_time(time: &Given<Duration>, rt: &TokenStream) -> TokenStream {
    match time {
        Given::Literal(time) => duration(*time),
        Given::Expr(time) => {
            let rt = moved_to(rt, located_at(time.span()));
            in_const(time, &quote_spanned!(located_at(time.span())=> #rt::fixed_time(#time)))
        }
    }
}

pub(crate) fn fixed_count(count: &Given<u32>, rt: &TokenStream) -> TokenStream {
    match count {
        Given::Literal(count) => count.to_token_stream(),
        Given::Expr(count) => {
            let rt = moved_to(rt, located_at(count.span()));
            in_const(count, &quote_spanned!(located_at(count.span())=> #rt::fixed_count(#count)))
        }
    }
}

pub(crate) fn max_waiters(waiters: &Given<u32>, rt: &TokenStream) -> TokenStream {
    match waiters {
        Given::Literal(waiters) => (*waiters as usize).to_token_stream(),
        Given::Expr(_) => {
            let waiters = fixed_count(waiters, rt);
            quote!(#waiters as ::core::primitive::usize)
        }
    }
}

pub(crate) fn some(value: &TokenStream) -> TokenStream {
    quote!(::core::option::Option::Some(#value))
}

pub(crate) fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

pub(crate) fn duration(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}
