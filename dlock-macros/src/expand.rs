//! A checked function to tokens: a static site, the key by reference, one call of the runtime. Nothing is checked here.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Type;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};

use crate::args::{Renew, Wait};
use crate::model::{KeyPiece, LockedFn};

pub(crate) fn expand(function: &LockedFn) -> TokenStream {
    let LockedFn { attrs, vis, sig, locked, .. } = function;
    let call = call(function);
    let body = match &locked.boxed {
        None => quote!({ #call }),
        Some(pin) => quote!({ #pin(async move { #call }) }),
    };
    quote!(#(#attrs)* #vis #sig #body)
}

/// The key is built before the body moves into its block, so that the body may move or change the arguments.
fn call(function: &LockedFn) -> TokenStream {
    let site = site(function);
    let key = key(function);
    let edge = return_edge(&function.locked.output);
    let result = result(&function.locked.output);
    let body = &function.locked.body.tokens;
    let block = quote_spanned!(located_at(function.locked.body.span)=> { #edge #body });
    quote_spanned! {Span::mixed_site()=>
        #site
        let __dlock_key = #key;
        let __dlock_ran = ::dlock::__private::run(&__DLOCK_SITE, ::dlock::__private::Call::new(__dlock_key), async move #block).await;
        #result
    }
}

fn site(function: &LockedFn) -> TokenStream {
    let name = format!("::{}", function.sig.ident.unraw());
    let template = function.template.value();
    let backend = option(function.backend.as_ref());
    let ttl = option(function.ttl.map(duration));
    let wait = option(function.wait.as_ref().map(wait));
    let renew = option(function.renew.as_ref().map(renew));
    quote_spanned! {Span::mixed_site()=>
        static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
            name: ::core::concat!(::core::module_path!(), #name),
            templates: &[#template],
            computed: false,
            file: ::core::file!(),
            line: ::core::line!(),
            backend: #backend,
            per_call: &[],
            options: ::dlock::__private::Options {
                ttl: #ttl, wait: #wait, renew: #renew,
                ..::dlock::__private::Options::DEFAULT
            },
            on_busy: ::dlock::__private::Otherwise::Error,
            on_outage: ::dlock::__private::Otherwise::Error,
        };
        ::dlock::__private::inventory::submit! { ::dlock::__private::Registered(&__DLOCK_SITE) }
    }
}

fn wait(wait: &Wait) -> TokenStream {
    match wait {
        Wait::None => quote!(::dlock::__private::Wait::None),
        Wait::Forever => quote!(::dlock::__private::Wait::Forever),
        Wait::UpTo(limit) => with(quote!(::dlock::__private::Wait::UpTo), *limit),
    }
}

fn renew(renew: &Renew) -> TokenStream {
    match renew {
        Renew::Off => quote!(::dlock::__private::Renew::Off),
        Renew::Auto => quote!(::dlock::__private::Renew::Auto),
        Renew::Every(cadence) => with(quote!(::dlock::__private::Renew::Every), *cadence),
    }
}

fn with(variant: TokenStream, time: Duration) -> TokenStream {
    let time = duration(time);
    quote!(#variant(#time))
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

fn duration(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}

/// Each value is spanned on the key, so that a type that cannot stand in a key is reported there.
fn key(function: &LockedFn) -> TokenStream {
    let at_key = located_at(function.template.span());
    let pieces = function.key.iter().map(|piece| match piece {
        KeyPiece::Text(text) => quote_spanned!(at_key=> __dlock_k.text(#text);),
        KeyPiece::Value(value) => quote_spanned!(at_key=> __dlock_k.value(&#value);),
    });
    quote_spanned! {Span::mixed_site()=>
        {
            let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
            #(#pieces)*
            __dlock_k.finish()
        }
    }
}

/// Tells the compiler what the block returns, so that a wrong type is reported in the body and not at the attribute.
fn return_edge(output: &Type) -> TokenStream {
    let (nameable, _) = without_impl(output);
    quote_spanned! {located_at(output.span())=>
        // It never runs and is never seen: what the lints say about it is of no use to anybody.
        #[allow(unreachable_code, clippy::all, clippy::pedantic)]
        if false {
            let __dlock_return: #nameable = loop {};
            return __dlock_return;
        }
    }
}

/// The trait is named on the return type, so that one that cannot carry a lock error is reported there.
fn result(output: &Type) -> TokenStream {
    let subject = match without_impl(output) {
        (_, 0) => quote_spanned!(located_at(output.span())=> <#output as ::dlock::__private::LockReturn>),
        _ => quote_spanned!(located_at(output.span())=> ::dlock::__private::LockReturn),
    };
    quote_spanned!(located_at(output.span())=> #subject::from_ran(__dlock_ran))
}

/// Names that only the expansion can see, reported at a place in the user's code.
fn located_at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The type with `_` for every `impl Trait`, which has no name inside the function, and how many there were.
fn without_impl(ty: &Type) -> (Type, usize) {
    struct Erase(usize);
    impl VisitMut for Erase {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = syn::parse_quote!(_);
                self.0 += 1;
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }
    let (mut ty, mut erase) = (ty.clone(), Erase(0));
    erase.visit_type_mut(&mut ty);
    (ty, erase.0)
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
