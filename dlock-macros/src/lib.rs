//! The attribute of dlock.

mod args;
mod duration;
mod expand;
mod fallback;
mod item;
mod model;
mod template;

use proc_macro2::TokenStream;

/// Runs an async function only while a distributed lock is held.
#[proc_macro_attribute]
pub fn distributed_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock(args.into(), item.into()).into()
}

fn lock(args: TokenStream, item: TokenStream) -> TokenStream {
    match model::LockedFn::new(args, item.clone()) {
        Ok(locked) => expand::expand(&locked),
        Err(mistakes) => fallback::report(&mistakes, &item),
    }
}
