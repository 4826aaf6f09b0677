//! The static that says what an attribute asked for, so that a program can list and check all of its locks.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Expr;
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use crate::call::{located_at, moved_to};
use crate::model::{Busy, Keys, LockedFn, OncePer};
use crate::values::{Backoff, Cohort, Given, Mode, OnLost, Renew, Retry, Wait};

pub(crate) fn site(function: &LockedFn, rt: &TokenStream) -> TokenStream {
    let name = match &function.name {
        Some(name) => name.to_token_stream(),
        None => {
            let name = format!("::{}", function.sig.ident.unraw());
            quote!(::core::concat!(::core::module_path!(), #name))
        }
    };
    let templates: Vec<String> = match &function.keys {
        Keys::One(template, _) => vec![template.value()],
        Keys::Several(templates) => templates.iter().map(|(template, _)| template.value()).collect(),
        Keys::Computed(key) => vec![key.to_token_stream().to_string()],
    };
    let computed = matches!(function.keys, Keys::Computed(_));
    let backend = option(literal(function.backend.as_ref()));
    let per_call = [
        ("backend", is_expr(function.backend.as_ref())),
        ("ttl", is_expr(function.ttl.as_ref())),
        ("wait", is_expr(function.wait.as_ref())),
    ];
    let per_call = per_call.iter().filter(|(_, given)| *given).map(|(name, _)| name);
    let options = options(function, rt);
    let on_busy = match &function.on_busy {
        Busy::Error => quote!(Error),
        Busy::Skip => quote!(Skip),
        Busy::Call { .. } => quote!(Call),
    };
    let on_outage = if function.skips_outage { quote!(Skip) } else { quote!(Error) };
    quote_spanned! {Span::mixed_site()=>
        static __DLOCK_SITE: #rt::Site = #rt::Site {
            name: #name,
            templates: &[#(#templates),*],
            computed: #computed,
            file: ::core::file!(),
            line: ::core::line!(),
            backend: #backend,
            per_call: &[#(#per_call),*],
            options: #options,
            on_busy: #rt::Otherwise::#on_busy,
            on_outage: #rt::Otherwise::#on_outage,
        };
        #rt::inventory::submit! { #rt::Registered(&__DLOCK_SITE) }
    }
}

fn literal<T>(given: Option<&Given<T>>) -> Option<&T> {
    given?.literal()
}

fn is_expr<T>(given: Option<&Given<T>>) -> bool {
    matches!(given, Some(Given::Expr(_)))
}

/// Only what was said.
fn options(function: &LockedFn, rt: &TokenStream) -> TokenStream {
    let options = &function.options;
    let mut fields = Vec::new();
    let mut field = |name: TokenStream, value: Option<TokenStream>| {
        fields.extend(value.map(|value| quote!(#name: #value)));
    };
    let some = |value: TokenStream| quote!(::core::option::Option::Some(#value));
    let time = |time: &Given<Duration>| some(fixed_time(time, rt));
    let count = |count: &Given<u32>| some(fixed_count(count, rt));
    field(quote!(ttl), literal(function.ttl.as_ref()).map(|ttl| some(duration(*ttl))));
    field(quote!(wait), literal(function.wait.as_ref()).map(|it| some(wait(it, rt))));
    field(quote!(renew), options.renew.as_ref().map(|it| some(renew(it, rt))));
    field(quote!(max_hold), options.max_hold.as_ref().map(time));
    field(quote!(attempts), options.attempts.as_ref().map(count));
    field(quote!(backoff), options.backoff.as_ref().map(|it| some(backoff(it, rt))));
    field(quote!(max_waiters), options.max_waiters.as_ref().map(|it| some(max_waiters(it, rt))));
    field(quote!(retry), options.retry.as_ref().map(|it| some(retry(it, rt))));
    field(quote!(mode), options.mode.as_ref().map(|it| mode(it, rt)));
    field(quote!(fair), options.fair.map(ToTokens::into_token_stream));
    field(quote!(cohort), options.cohort.as_ref().map(|it| some(cohort(it, rt))));
    field(quote!(reentrant), options.reentrant.map(ToTokens::into_token_stream));
    field(quote!(timeout), options.timeout.as_ref().map(time));
    field(quote!(min_hold), options.min_hold.as_ref().map(time));
    field(quote!(once_per), options.once_per.as_ref().map(|it| some(once_per(it, rt))));
    field(quote!(record), options.record.then(|| quote!(true)));
    field(quote!(on_lost), options.on_lost.map(|it| on_lost(it, rt)));
    field(quote!(fence), function.fence.as_ref().map(|_| quote!(true)));
    if fields.is_empty() {
        quote!(#rt::Options::DEFAULT)
    } else {
        quote!(#rt::Options { #(#fields,)* ..#rt::Options::DEFAULT })
    }
}

fn wait(wait: &Wait, rt: &TokenStream) -> TokenStream {
    match wait {
        Wait::None => quote!(#rt::Wait::None),
        Wait::Forever => quote!(#rt::Wait::Forever),
        Wait::UpTo(limit) => {
            let limit = duration(*limit);
            quote!(#rt::Wait::UpTo(#limit))
        }
    }
}

fn renew(renew: &Renew, rt: &TokenStream) -> TokenStream {
    match renew {
        Renew::Off => quote!(#rt::Renew::Off),
        Renew::Auto => quote!(#rt::Renew::Auto),
        Renew::Every(cadence) => {
            let cadence = fixed_time(cadence, rt);
            quote!(#rt::Renew::Every(#cadence))
        }
    }
}

fn backoff(backoff: &Backoff, rt: &TokenStream) -> TokenStream {
    let (from, to) = (duration(backoff.from), duration(backoff.to));
    quote!(#rt::Backoff { from: #from, to: #to })
}

fn retry(retry: &Retry, rt: &TokenStream) -> TokenStream {
    let (times, backoff) = (retry.times, backoff(&retry.backoff, rt));
    quote!(#rt::Retry { times: #times, backoff: #backoff })
}

fn mode(mode: &Mode, rt: &TokenStream) -> TokenStream {
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

fn cohort(cohort: &Cohort, rt: &TokenStream) -> TokenStream {
    let (passes, span) = (cohort.passes, option(cohort.span.map(duration)));
    quote!(#rt::Cohort { passes: #passes, span: #span })
}

fn once_per(once: &OncePer, rt: &TokenStream) -> TokenStream {
    let offset = once.offset.as_ref().map_or_else(|| duration(Duration::ZERO), |offset| fixed_time(offset, rt));
    let (period, rerun) = (fixed_time(&once.period, rt), once.rerun);
    quote!(#rt::OncePer { period: #period, offset: #offset, rerun: #rerun })
}

fn on_lost(on_lost: OnLost, rt: &TokenStream) -> TokenStream {
    match on_lost {
        OnLost::Cancel => quote!(#rt::OnLost::Cancel),
        OnLost::Continue => quote!(#rt::OnLost::Continue),
    }
}

/// In a constant, since of a static the compiler would say to make it lazy. A name needs none: it is a constant already.
fn worked_out(value: &Expr, checked: &TokenStream) -> TokenStream {
    match value {
        Expr::Path(_) => checked.clone(),
        _ => quote_spanned!(located_at(value.span())=> const { #checked }),
    }
}

/// Checked by the compiler, and reported where it is written.
fn fixed_time(time: &Given<Duration>, rt: &TokenStream) -> TokenStream {
    match time {
        Given::Literal(time) => duration(*time),
        Given::Expr(time) => {
            let rt = moved_to(rt, located_at(time.span()));
            worked_out(time, &quote_spanned!(located_at(time.span())=> #rt::fixed_time(#time)))
        }
    }
}

pub(crate) fn fixed_count(count: &Given<u32>, rt: &TokenStream) -> TokenStream {
    match count {
        Given::Literal(count) => count.to_token_stream(),
        Given::Expr(count) => {
            let rt = moved_to(rt, located_at(count.span()));
            worked_out(count, &quote_spanned!(located_at(count.span())=> #rt::fixed_count(#count)))
        }
    }
}

fn max_waiters(waiters: &Given<u32>, rt: &TokenStream) -> TokenStream {
    match waiters {
        Given::Literal(waiters) => (*waiters as usize).to_token_stream(),
        Given::Expr(_) => {
            let waiters = fixed_count(waiters, rt);
            quote!(#waiters as usize)
        }
    }
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
