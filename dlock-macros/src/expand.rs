//! A checked function to tokens: a static site, the key by reference, one call of the runtime. Nothing is checked here.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Token, Type, TypeInfer};

use crate::args::{Backend, Renew, Wait};
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
    let at_body = Span::mixed_site().located_at(function.locked.body.span);
    let block = quote_spanned!(at_body=> { #edge #body });
    quote_spanned! {Span::mixed_site()=>
        #site
        let __dlock_key = #key;
        let __dlock_ran = ::dlock::__private::run(&__DLOCK_SITE, __dlock_key, async move #block).await;
        #result
    }
}

fn site(function: &LockedFn) -> TokenStream {
    let name = format!("::{}", syn::ext::IdentExt::unraw(&function.sig.ident));
    let template = function.template.value();
    let backend = option(function.backend.as_ref().map(|backend| match backend {
        Backend::Name(name) => name.to_token_stream(),
        Backend::Const(path) => path.to_token_stream(),
    }));
    let ttl = option(function.ttl.map(duration));
    let wait = option(function.wait.as_ref().map(|wait| match wait {
        Wait::None => quote!(::dlock::__private::Wait::None),
        Wait::Forever => quote!(::dlock::__private::Wait::Forever),
        Wait::UpTo(limit) => {
            let limit = duration(*limit);
            quote!(::dlock::__private::Wait::UpTo(#limit))
        }
    }));
    let renew = option(function.renew.as_ref().map(|renew| match renew {
        Renew::Off => quote!(::dlock::__private::Renew::Off),
        Renew::Auto => quote!(::dlock::__private::Renew::Auto),
        Renew::Every(cadence) => {
            let cadence = duration(*cadence);
            quote!(::dlock::__private::Renew::Every(#cadence))
        }
    }));
    quote_spanned! {Span::mixed_site()=>
        static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site::new(::dlock::__private::SiteSpec {
            name: ::core::concat!(::core::module_path!(), #name),
            template: #template,
            file: ::core::file!(),
            line: ::core::line!(),
            backend: #backend,
            ttl: #ttl,
            wait: #wait,
            renew: #renew,
        });
    }
}

fn option(value: Option<TokenStream>) -> TokenStream {
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
    let at_key = Span::mixed_site().located_at(function.template.span());
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
    let mut output = output.clone();
    EraseImpl(0).visit_type_mut(&mut output);
    let span = Span::mixed_site().located_at(syn::spanned::Spanned::span(&output));
    quote_spanned! {span=>
        #[allow(unreachable_code, clippy::all, clippy::pedantic)]
        if false {
            let __dlock_return: #output = loop {};
            return __dlock_return;
        }
    }
}

/// The trait is named on the return type, so that one that cannot carry a lock error is reported there.
fn result(output: &Type) -> TokenStream {
    let mut erased = EraseImpl(0);
    erased.visit_type_mut(&mut output.clone());
    let span = Span::mixed_site().located_at(syn::spanned::Spanned::span(output));
    match erased.0 {
        0 => quote_spanned!(span=> <#output as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)),
        _ => quote_spanned!(span=> ::dlock::__private::LockReturn::from_ran(__dlock_ran)),
    }
}

/// Puts `_` where `impl Trait` stands, which has no name inside the function, and counts them.
struct EraseImpl(usize);

impl VisitMut for EraseImpl {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let Type::ImplTrait(found) = ty {
            let underscore_token = Token![_](found.impl_token.span);
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token });
            self.0 += 1;
        }
        visit_mut::visit_type_mut(self, ty);
    }
}
