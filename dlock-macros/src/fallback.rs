//! What is emitted instead of a locked function when something is wrong.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::args::{Args, Dialect};
use crate::item::Function;

/// Every mistake as its own compile error, and the item as it was written.
///
/// Without the item each of its callers would get an error too, and the one that matters would drown. For the same
/// reason the names that the attribute gives to the body are there.
pub(crate) fn report(mistakes: &[syn::Error], dialect: &Dialect, args: TokenStream, item: TokenStream) -> TokenStream {
    let mistakes = mistakes.iter().map(syn::Error::to_compile_error);
    let item = with_names(dialect, args, item.clone()).unwrap_or(item);
    quote!(#(#mistakes)* #item)
}

fn with_names(dialect: &Dialect, args: TokenStream, item: TokenStream) -> Option<TokenStream> {
    let args = Args::parse(dialect, args, &mut Vec::new());
    if args.guard.is_none() && args.fence.is_none() {
        return None;
    }
    let Function { attrs, vis, sig, body } = Function::parse(dialect.attribute, item).ok()?;
    let body = body?;
    let runtime = args.krate.map_or_else(|| syn::parse_quote_spanned!(Span::mixed_site()=> ::dlock), |path| path.value);
    // Never run, and so never wrong.
    let value = |of: &str| {
        let of = syn::Ident::new(of, Span::mixed_site());
        quote_spanned! {Span::mixed_site()=>
            match #runtime::__private::#of() {
                ::core::result::Result::Ok(__dlock_value) => __dlock_value,
                ::core::result::Result::Err(_) => loop {},
            }
        }
    };
    let guard = args.guard.map(|guard| {
        let (name, held) = (guard.value, value("holding_now"));
        let held = if args.keys.is_some() { quote!(#runtime::__private::Vec::from([#held])) } else { held };
        quote!(let #name = #held;)
    });
    let fence = args.fence.map(|fence| {
        let (name, token) = (fence.value, value("fence_now"));
        quote!(let #name = #token;)
    });
    let tokens = body.tokens;
    let block = quote_spanned!(body.span=> { #guard #fence #tokens });
    Some(quote!(#(#attrs)* #vis #sig #block))
}
