//! The expansion of a function with mistakes.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::item::{Body, Function};
use crate::reader::read;
use crate::spans::located_at;
use crate::table::{Args, AttributeSpec};

/// Every mistake as its own compile error, and the item as it was written.
///
/// Without the item each of its callers would get an error too, and the one that matters would drown.
pub(crate) fn report(
    mistakes: &[syn::Error],
    spec: &AttributeSpec,
    args: TokenStream,
    item: TokenStream,
) -> TokenStream {
    let mistakes: TokenStream = mistakes.iter().map(syn::Error::to_compile_error).collect();
    match Function::parse(spec.attribute, item.clone()) {
        Ok(Function { attrs, vis, sig, body: Some(body) }) => {
            let block = with_mistakes(&mistakes, spec, args, &body);
            quote!(#(#attrs)* #vis #sig #block)
        }
        _ => quote!(#mistakes #item),
    }
}

/// In the body the mistakes are an expression, whose type nobody knows: so the compiler reports nothing that
/// depends on it. The names that the attribute gives to the body have that type, and everything that the attribute
/// mentions is used: parameters that only the key needs are not called unused, nor are imports.
fn with_mistakes(mistakes: &TokenStream, spec: &AttributeSpec, args: TokenStream, body: &Body) -> TokenStream {
    let Args { in_body, mentioned, .. } = read(spec, args, &mut Vec::new());
    let used = quote_spanned!(Span::mixed_site()=> let _ = async { (#(&#mentioned,)*); __dlock_mistake };);
    let (tokens, in_body) = (&body.tokens, in_body.iter().map(|(_, name)| name));
    quote_spanned! {located_at(body.span)=>
        {
            let __dlock_mistake = { #mistakes };
            #used
            #(let #in_body = __dlock_mistake;)*
            #tokens
        }
    }
}
