//! The static that says what an attribute asked for, so that a program can list and check all of its locks.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;

use crate::busy::Busy;
use crate::model::{Keys, LockedFn};
use crate::table::LOCK;
use crate::tokens::option;
use crate::values::Given;

pub(crate) fn site(function: &LockedFn, rt: &TokenStream) -> TokenStream {
    let name = match function.name() {
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
    let is_async = !function.locked.shape.is_sync();
    let backend = option(literal(function.backend()));
    let per_call = [
        ("backend", is_expr(function.backend())),
        ("ttl", is_expr(function.ttl())),
        ("wait", is_expr(function.wait())),
    ];
    let per_call = per_call.iter().filter(|(_, given)| *given).map(|(name, _)| name);
    let options = options(function, rt);
    let on_busy = match &function.on_busy {
        Busy::Error => quote!(Error),
        Busy::Skip => quote!(Skip),
        Busy::Call { .. } => quote!(Call),
    };
    let on_outage = if function.skips_outage() { quote!(Skip) } else { quote!(Error) };
    quote_spanned! {Span::mixed_site()=>
        static __DLOCK_SITE: #rt::Site = #rt::Site {
            name: #name,
            templates: &[#(#templates),*],
            computed: #computed,
            is_async: #is_async,
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

/// Only the options that were given.
fn options(function: &LockedFn, rt: &TokenStream) -> TokenStream {
    let fields = LOCK.table.iter().filter_map(|row| {
        let value = (row.field)(&function.args, rt)?;
        let name = format_ident!("{}", row.name);
        Some(quote!(#name: #value))
    });
    let mut fields: Vec<_> = fields.collect();
    // No option sets this: the runs of a scheduled task are recorded.
    fields.extend(function.args.record.then(|| quote!(record: true)));
    if fields.is_empty() {
        quote!(#rt::Options::DEFAULT)
    } else {
        quote!(#rt::Options { #(#fields,)* ..#rt::Options::DEFAULT })
    }
}
