//! What is emitted instead of a locked function when something is wrong.

use proc_macro2::TokenStream;
use quote::quote;

/// Every mistake as its own compile error, and the item as it was written.
///
/// Without the item each of its callers would get an error too, and the one that matters would drown.
pub(crate) fn report(mistakes: &[syn::Error], item: &TokenStream) -> TokenStream {
    let mistakes = mistakes.iter().map(syn::Error::to_compile_error);
    quote!(#(#mistakes)* #item)
}
