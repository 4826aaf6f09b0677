//! `#[optimistic]`: the body in a loop, which the runtime ends.

use dlock_values::Pauses;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, FnArg, PatIdent, Path, Signature, Token, Visibility};

use crate::expand::{self, has_run, output_as, return_type_hint, runtime_name};
use crate::expressions;
use crate::item::{Function, Locked, Shape};
use crate::names::Names;
use crate::reader::read;
use crate::spans::located_at;
use crate::table::OPTIMISTIC;
use crate::tokens::{duration, fixed_count};
use crate::values::Given;
use crate::written::{note_mistake, value};

pub(crate) struct OptimisticFn {
    attrs: Vec<Attribute>,
    vis: Visibility,
    sig: Signature,
    locked: Locked,
    runtime: Path,
    retries: Given<u32>,
    pauses: Pauses,
}

const RETRIES: u32 = 3;
const PAUSES: Pauses = (std::time::Duration::from_millis(10), std::time::Duration::from_secs(1));

impl OptimisticFn {
    pub(crate) fn new(attribute: TokenStream, item: TokenStream) -> Result<OptimisticFn, Vec<syn::Error>> {
        let mut mistakes = Vec::new();
        let args = read(&OPTIMISTIC, attribute, &mut mistakes);
        let function = note_mistake(Function::parse(OPTIMISTIC.attribute, item), &mut mistakes);
        let Some(mut function) = function else { return Err(mistakes) };
        check_arguments(&function.sig, &mut mistakes);
        expressions::check(&OPTIMISTIC, &args, &Names::of(&function.sig), &mut mistakes);
        let locked = note_mistake(function.locked(&OPTIMISTIC), &mut mistakes);
        let Function { attrs, vis, sig, .. } = function;
        let (Some(locked), true) = (locked, mistakes.is_empty()) else { return Err(mistakes) };
        Ok(OptimisticFn {
            attrs,
            vis,
            sig,
            locked,
            runtime: value(args.krate).unwrap_or_else(|| syn::parse_quote_spanned!(Span::mixed_site()=> ::dlock)),
            retries: value(args.retries).unwrap_or(Given::Literal(RETRIES)),
            pauses: value(args.backoff).unwrap_or(PAUSES),
        })
    }

    pub(crate) fn expand(&self) -> TokenStream {
        let OptimisticFn { attrs, vis, sig, .. } = self;
        let attempts = self.attempts();
        let body = match &self.locked.shape {
            Shape::Async | Shape::Sync => quote!({ #attempts }),
            Shape::Boxed(pin) => quote!({ #pin(async move { #attempts }) }),
        };
        quote!(#(#attrs)* #vis #sig #body)
    }

    /// A block for each attempt that borrows the arguments: a body that would move one is refused by the compiler.
    fn attempts(&self) -> TokenStream {
        let OptimisticFn { locked, runtime, retries, pauses, .. } = self;
        let rt = runtime_name();
        let runtime = expand::runtime(runtime, &rt);
        let retries = fixed_count(retries, &rt);
        let (from, to) = (duration(pauses.0), duration(pauses.1));
        let (hint, tokens, span) =
            (return_type_hint(&locked.output, &rt), &locked.body.tokens, located_at(locked.body.span));
        let block = quote_spanned!(span=> { #hint #tokens });
        let judged = output_as(&locked.output, &rt, "OptimisticReturn", &quote_spanned!(span=> judged));
        let (result, pause) = if locked.shape.is_sync() {
            let pause = quote_spanned!(Span::mixed_site()=> #rt::pause_sync(__dlock_pause));
            (quote_spanned!(span=> #rt::attempt(|| #block)), pause)
        } else {
            let pause = quote_spanned!(Span::mixed_site()=> #rt::pause(__dlock_pause).await);
            (quote_spanned!(span=> async #block.await), pause)
        };
        let has_run = has_run(&locked.output, &rt, &quote_spanned!(Span::mixed_site()=> __dlock_result));
        quote_spanned! {Span::mixed_site()=>
            #runtime
            const __DLOCK_RETRIES: ::core::primitive::u32 = #retries;
            let mut __dlock_attempts = #rt::Attempts::new(__DLOCK_RETRIES, #rt::Backoff::new(#from, #to));
            loop {
                let __dlock_result = #result;
                #has_run
                match #judged(__dlock_result, &mut __dlock_attempts) {
                    ::core::ops::ControlFlow::Break(__dlock_result) => break __dlock_result,
                    ::core::ops::ControlFlow::Continue(__dlock_pause) => #pause,
                }
            }
        }
    }
}

/// Every attempt must begin with the same arguments.
fn check_arguments(sig: &Signature, mistakes: &mut Vec<syn::Error>) {
    for input in &sig.inputs {
        let mut changed = MutableNames::default();
        match input {
            FnArg::Receiver(receiver) => {
                changed.0.extend(receiver.mutability.map(|token| (token, "self".to_owned())));
            }
            FnArg::Typed(typed) => changed.visit_pat_mut(&mut typed.pat.clone()),
        }
        for (mutable, name) in changed.0 {
            let text = format!(
                "the second attempt would begin with what the first one has made of `{name}`: \
                 leave out `mut` here, and write `let mut {name} = {name};` in the body, or `{name}.clone()`"
            );
            mistakes.push(syn::Error::new_spanned(mutable, text));
        }
    }
}

/// The names of a pattern with `mut`, however deep they are, as in `Path(mut id)`.
#[derive(Default)]
struct MutableNames(Vec<(Token![mut], String)>);

impl VisitMut for MutableNames {
    fn visit_pat_ident_mut(&mut self, name: &mut PatIdent) {
        self.0.extend(name.mutability.map(|token| (token, name.ident.to_string())));
        visit_mut::visit_pat_ident_mut(self, name);
    }
}
