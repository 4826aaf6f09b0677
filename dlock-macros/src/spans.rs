//! The places at which the compiler reports errors in an expansion.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;

/// Names that only the expansion can see, reported at a place in the user's code.
pub(crate) fn located_at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The same names, reported at another place.
pub(crate) fn moved_to(tokens: &TokenStream, span: Span) -> TokenStream {
    let moved = tokens.clone().into_iter().map(|mut token: TokenTree| {
        token.set_span(span.resolved_at(token.span()));
        token
    });
    moved.collect::<TokenStream>().into_token_stream()
}
