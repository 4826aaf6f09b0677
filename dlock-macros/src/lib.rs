//! The attribute of dlock. Use it through the crate `dlock-rs`, which brings the runtime that it calls.
//!
//! Reading order: `table` (what can be written), `written`, `values`, `key_values` and `literals` (how it is read; the texts of
//! values by the crate `dlock-values`), `template` (the small language in keys), `item` and `lazy` (the function), `arguments` (how its arguments come into the body), `names` (the names in a key), `expressions` (the names in
//! an expression), `checks` (options that do not fit together), `busy` (the option `on_busy`), `model` (everything checked), `expand` with `site` and
//! `call` (tokens). `fallback` is for functions with mistakes, `optimistic` for the attribute that takes no lock.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod busy;
mod call;
mod checks;
mod expand;
mod expressions;
mod fallback;
mod item;
mod key_values;
mod lazy;
mod literals;
mod model;
mod names;
mod optimistic;
mod reader;
mod site;
mod spans;
mod suggest;
mod table;
mod template;
mod tokens;
mod values;
mod written;

use proc_macro2::TokenStream;

#[doc = include_str!("docs/distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand_lock(&table::LOCK, args.into(), item.into()).into()
}

#[doc = include_str!("docs/scheduled_lock.md")]
#[proc_macro_attribute]
pub fn scheduled_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand_lock(&table::SCHEDULED, args.into(), item.into()).into()
}

#[doc = include_str!("docs/optimistic.md")]
#[proc_macro_attribute]
pub fn optimistic(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand_optimistic(args.into(), item.into()).into()
}

fn expand_optimistic(args: TokenStream, item: TokenStream) -> TokenStream {
    match optimistic::OptimisticFn::new(args.clone(), item.clone()) {
        Ok(function) => function.expand(),
        Err(mistakes) => fallback::report(&mistakes, &table::OPTIMISTIC, args, item),
    }
}

fn expand_lock(spec: &table::AttributeSpec, args: TokenStream, item: TokenStream) -> TokenStream {
    match model::LockedFn::new(spec, args.clone(), item.clone()) {
        Ok(locked) => expand::expand(&locked),
        Err(mistakes) => fallback::report(&mistakes, spec, args, item),
    }
}
