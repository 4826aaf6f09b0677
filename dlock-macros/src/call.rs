//! The part of a request that one call adds to its site: the keys, and the options that an expression gives. All of it
//! is read by reference, before the body may move the arguments.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprReference, Token};

use crate::model::{Keys, LockedFn};
use crate::names::{KeyPiece, Template};
use crate::spans::{located_at, moved_to};
use crate::values::Given;

/// A statement of its own, so that nothing that an expression borrows stays borrowed for as long as the lock is held.
pub(crate) fn call(function: &LockedFn, rt: &TokenStream) -> TokenStream {
    let keys = match &function.keys {
        Keys::One(template, pieces) => {
            let key = key(pieces, located_at(template.span()), rt);
            quote_spanned!(Span::mixed_site()=> #rt::Call::new(#key))
        }
        Keys::Several(templates) => {
            let has_list = templates.iter().any(|(_, template)| matches!(template, Template::Each { .. }));
            let lists = has_list.then(|| quote_spanned!(Span::mixed_site()=> use #rt::EachOf as _;));
            let keys = templates.iter().map(|(text, template)| push(template, located_at(text.span()), rt));
            quote_spanned! {Span::mixed_site()=>
                #rt::Call::several({
                    #lists
                    let mut __dlock_keys = #rt::Vec::new();
                    #(#keys)*
                    __dlock_keys
                })
            }
        }
        Keys::Computed(key) => quote_spanned!(located_at(key.span())=> #rt::Call::computed(#key)),
    };
    let backend = expr(function.backend()).map(|name| {
        let name = borrowed(name);
        quote_spanned!(located_at(name.span())=> .backend(#name))
    });
    let ttl = expr(function.ttl()).map(|ttl| quote_spanned!(located_at(ttl.span())=> .ttl(#ttl)));
    let wait = expr(function.wait()).map(|wait| quote_spanned!(located_at(wait.span())=> .wait(#wait)));
    let call = quote_spanned!(Span::mixed_site()=> #keys #backend #ttl #wait);
    let names = &function.arguments.for_call;
    let call = if names.is_empty() { call } else { quote_spanned!(Span::mixed_site()=> { #names #call }) };
    quote_spanned!(Span::mixed_site()=> let __dlock_call = #call;)
}

fn expr<T>(given: Option<&Given<T>>) -> Option<&Expr> {
    match given {
        Some(Given::Expr(expr)) => Some(expr),
        _ => None,
    }
}

fn borrowed(expr: &Expr) -> ExprReference {
    let and_token = Token![&](located_at(expr.span()));
    ExprReference { attrs: Vec::new(), and_token, mutability: None, expr: Box::new(expr.clone()) }
}

/// Each value is spanned on the key, so that a type that cannot stand in a key is reported there.
///
/// All methods are called by their paths: a trait of the user's may have methods of the same names for all types.
fn key(pieces: &[KeyPiece], at_key: Span, rt: &TokenStream) -> TokenStream {
    let pieces = add(pieces, at_key, rt);
    quote_spanned! {Span::mixed_site()=>
        {
            let mut __dlock_k = #rt::KeyBuilder::new();
            #pieces
            #rt::KeyBuilder::finish(__dlock_k)
        }
    }
}

fn add(pieces: &[KeyPiece], at_key: Span, rt: &TokenStream) -> TokenStream {
    let rt = moved_to(rt, at_key);
    let pieces = pieces.iter().map(|piece| match piece {
        KeyPiece::Text(text) => quote_spanned!(at_key=> #rt::KeyBuilder::text(&mut __dlock_k, #text);),
        KeyPiece::Value(value) => quote_spanned!(at_key=> #rt::KeyBuilder::value(&mut __dlock_k, &#value);),
    });
    quote!(#(#pieces)*)
}

fn push(template: &Template, at_key: Span, rt: &TokenStream) -> TokenStream {
    match template {
        Template::One(pieces) => {
            let key = key(pieces, at_key, rt);
            quote_spanned!(Span::mixed_site()=> #rt::Vec::push(&mut __dlock_keys, #key);)
        }
        Template::Each { before, list, after } => {
            let (before, after) = (add(before, at_key, rt), add(after, at_key, rt));
            let at_rt = moved_to(rt, at_key);
            let value = quote_spanned!(at_key=> #at_rt::KeyBuilder::value(&mut __dlock_k, __dlock_each););
            let list = quote_spanned!(at_key=> #list.__dlock_each());
            quote_spanned! {Span::mixed_site()=>
                for __dlock_each in #list {
                    let mut __dlock_k = #rt::KeyBuilder::new();
                    #before #value #after
                    #rt::Vec::push(&mut __dlock_keys, #rt::KeyBuilder::finish(__dlock_k));
                }
            }
        }
    }
}
