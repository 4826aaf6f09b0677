//! A checked function to tokens: a static site, the call, and the runtime around the body. Nothing is checked here.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Path, Type};

use crate::busy::Busy;
use crate::call::call;
use crate::item::Shape;
use crate::model::{Keys, LockedFn};
use crate::site::site;
use crate::spans::{located_at, moved_to};
use crate::tokens::option;

pub(crate) fn expand(function: &LockedFn) -> TokenStream {
    let LockedFn { attrs, vis, sig, locked, .. } = function;
    let locked_body = LockedBody::new(function).tokens();
    let body = match &locked.shape {
        Shape::Async | Shape::Sync => quote!({ #locked_body }),
        Shape::Boxed(pin) => quote!({ #pin(async move { #locked_body }) }),
    };
    quote!(#(#attrs)* #vis #sig #body)
}

struct LockedBody<'a> {
    function: &'a LockedFn,
    rt: TokenStream,
    output: &'a Type,
    is_sync: bool,
}

impl<'a> LockedBody<'a> {
    fn new(function: &'a LockedFn) -> Self {
        let rt = runtime_name();
        LockedBody { function, rt, output: &function.locked.output, is_sync: function.locked.shape.is_sync() }
    }

    fn tokens(&self) -> TokenStream {
        let runtime = runtime(&self.function.runtime, &self.rt);
        let site = site(self.function, &self.rt);
        let call = call(self.function, &self.rt);
        let work = if self.needs_two_steps() { self.begin_and_hold() } else { self.run() };
        quote_spanned!(Span::mixed_site()=> #runtime #site #call #work)
    }

    /// Whether there is work between the acquisition and the body, or instead of the body.
    fn needs_two_steps(&self) -> bool {
        matches!(self.function.on_busy, Busy::Call { .. }) || self.guards_name().is_some()
    }

    fn run(&self) -> TokenStream {
        let (rt, body, judge) = (&self.rt, self.body(), self.judge());
        let ran = if self.is_sync {
            quote_spanned!(Span::mixed_site()=> #rt::run_sync(&__DLOCK_SITE, __dlock_call, #judge, #body))
        } else {
            quote_spanned!(Span::mixed_site()=> #rt::run(&__DLOCK_SITE, __dlock_call, #body)#judge.await)
        };
        let result = self.returned(&quote_spanned!(Span::mixed_site()=> __dlock_ran));
        let has_run = self.has_run();
        quote_spanned!(Span::mixed_site()=> let __dlock_ran = #ran; #has_run #result)
    }

    fn begin_and_hold(&self) -> TokenStream {
        let (rt, body, judge) = (&self.rt, self.body(), self.judge());
        let (acquired, ran) = if self.is_sync {
            let acquired = quote_spanned!(Span::mixed_site()=> #rt::begin_sync(&__DLOCK_SITE, __dlock_call));
            (acquired, quote_spanned!(Span::mixed_site()=> #rt::hold_sync(__dlock_guards, #judge, #body)))
        } else {
            let acquired = quote_spanned!(Span::mixed_site()=> #rt::begin(&__DLOCK_SITE, __dlock_call).await);
            (acquired, quote_spanned!(Span::mixed_site()=> #rt::hold(&__DLOCK_SITE, __dlock_guards, #body)#judge.await))
        };
        let guards = self
            .guards_name()
            .map(|_| quote_spanned!(Span::mixed_site()=> let __dlock_held = __dlock_guards.to_held();));
        let fallback = self.call_fallback();
        let result = self.returned(&quote_spanned!(Span::mixed_site()=> __dlock_ran));
        let failed = self.returned(&quote_spanned!(Span::mixed_site()=> #rt::Ran::Failed(__dlock_error)));
        let has_run = self.has_run();
        quote_spanned! {Span::mixed_site()=>
            match #acquired {
                ::core::result::Result::Ok(__dlock_guards) => {
                    #guards
                    let __dlock_ran = #ran;
                    #has_run
                    #result
                }
                #fallback
                ::core::result::Result::Err(__dlock_error) => #failed,
            }
        }
    }

    fn call_fallback(&self) -> Option<TokenStream> {
        let Busy::Call { path, arguments } = &self.function.on_busy else { return None };
        let at_path = located_at(path.span());
        let rt = moved_to(&self.rt, at_path);
        let (output, _) = without_impl(self.output);
        let call = quote_spanned!(at_path=> #path(#(#arguments),*));
        let output_of_fallback = if self.is_sync {
            call
        } else {
            quote_spanned! {at_path=>
                {
                    use #rt::{FallbackIsFuture as _, FallbackIsValue as _};
                    let __dlock_fallback = #rt::FallbackCall::new(#call);
                    (&__dlock_fallback).__dlock_kind().output(__dlock_fallback).await
                }
            }
        };
        Some(quote_spanned! {at_path=>
            ::core::result::Result::Err(__dlock_error) if __dlock_error.is_contention() => {
                #rt::SameOutput::<#output>::output(#output_of_fallback)
            }
        })
    }

    /// The body as it was written, after what the compiler must know of it and the names that it asked for.
    fn body(&self) -> TokenStream {
        let hint = return_type_hint(self.output, &self.rt);
        let guard = self.guard();
        let body = &self.function.locked.body;
        let (tokens, span) = (&body.tokens, located_at(body.span));
        let start = if self.is_sync { quote_spanned!(span=> move ||) } else { quote_spanned!(span=> async move) };
        let arguments = &self.function.arguments.for_body;
        quote_spanned!(span=> #start { #hint #arguments #guard #tokens })
    }

    fn guard(&self) -> TokenStream {
        let (guard, fence) = (self.function.guard(), self.function.fence());
        let rt = &self.rt;
        let failed = self.returned(&quote_spanned!(Span::mixed_site()=> #rt::Ran::Failed(__dlock_error)));
        let bind = |name: &syn::Ident, value: TokenStream| {
            quote_spanned! {Span::mixed_site()=>
                let #name = match #value {
                    ::core::result::Result::Ok(__dlock_value) => __dlock_value,
                    ::core::result::Result::Err(__dlock_error) => return #failed,
                };
            }
        };
        let guard = match (guard, self.guards_name()) {
            (_, Some(guards)) => Some(quote_spanned!(Span::mixed_site()=> let #guards = __dlock_held;)),
            (Some(guard), None) => Some(bind(guard, quote_spanned!(Span::mixed_site()=> #rt::holding_now()))),
            (None, None) => None,
        };
        let fence = fence.as_ref().map(|name| bind(name, quote_spanned!(Span::mixed_site()=> #rt::fence_now())));
        quote!(#guard #fence)
    }

    /// The name for the looks at several locks.
    fn guards_name(&self) -> Option<&syn::Ident> {
        match &self.function.keys {
            Keys::Several(_) => self.function.guard(),
            Keys::One(..) | Keys::Computed(_) => None,
        }
    }

    /// The function that finds success in the result: for stores that record a run, or make the body's work final.
    fn judge(&self) -> TokenStream {
        let judge = self.output_as(&quote_spanned!(located_at(self.output.span())=> succeeded));
        if self.is_sync {
            return option(Some(judge));
        }
        quote_spanned!(Span::mixed_site()=> .judged_by(#judge))
    }

    fn has_run(&self) -> TokenStream {
        has_run(self.output, &self.rt, &quote_spanned!(Span::mixed_site()=> __dlock_ran))
    }

    fn returned(&self, ran: &TokenStream) -> TokenStream {
        let at_output = located_at(self.output.span());
        let from_ran = self.output_as(&quote_spanned!(at_output=> from_ran));
        if !self.skips() {
            return quote_spanned!(at_output=> #from_ran(#ran));
        }
        let (busy, outage) = (matches!(self.function.on_busy, Busy::Skip), self.function.skips_outage());
        let rt = &self.rt;
        let skip = quote_spanned!(Span::mixed_site()=> #rt::Skip { busy: #busy, outage: #outage });
        quote_spanned!(at_output=> #from_ran(#ran, #skip))
    }

    fn skips(&self) -> bool {
        matches!(self.function.on_busy, Busy::Skip) || self.function.skips_outage()
    }

    fn output_as(&self, method: &TokenStream) -> TokenStream {
        let name = if self.skips() { "SkipReturn" } else { "LockReturn" };
        output_as(self.output, &self.rt, name, method)
    }
}

/// The name by which an expansion calls the runtime.
pub(crate) fn runtime_name() -> TokenStream {
    quote_spanned!(Span::mixed_site()=> __dlock)
}

/// The one place that names the path to it: a path that leads nowhere is one error.
pub(crate) fn runtime(path: &Path, name: &TokenStream) -> TokenStream {
    quote_spanned!(Span::mixed_site()=> use #path::__private as #name;)
}

/// A method of the trait, named on the return type, so that a type without the trait is reported there.
pub(crate) fn output_as(output: &Type, rt: &TokenStream, name: &str, method: &TokenStream) -> TokenStream {
    let at_output = located_at(output.span());
    let name = syn::Ident::new(name, at_output);
    let rt = moved_to(rt, at_output);
    match without_impl(output) {
        (_, 0) => quote_spanned!(at_output=> <#output as #rt::#name>::#method),
        _ => quote_spanned!(at_output=> #rt::#name::#method),
    }
}

/// Tells the compiler what the block returns, so that a wrong type is reported in the body and not at the attribute.
///
/// No lint is switched off for it: a crate may forbid that.
pub(crate) fn return_type_hint(output: &Type, rt: &TokenStream) -> TokenStream {
    let (nameable, _) = without_impl(output);
    let at_output = located_at(output.span());
    let rt = moved_to(rt, at_output);
    quote_spanned! {at_output=>
        if false {
            return #rt::unreached::<#nameable>();
        }
    }
}

/// Makes a result that contains a future an error of the compiler, at the return type.
pub(crate) fn has_run(output: &Type, rt: &TokenStream, returned: &TokenStream) -> TokenStream {
    let at_output = located_at(output.span());
    let rt = moved_to(rt, at_output);
    quote_spanned! {at_output=>
        {
            use #rt::{ReturnsValue as _, ReturnsWork as _};
            #rt::has_run((&#rt::Returned::of(&#returned)).__dlock_kind());
        }
    }
}

/// The type with `_` for every `impl Trait`, which has no name inside the function, and how many there were.
fn without_impl(ty: &Type) -> (Type, usize) {
    struct Erase(usize);
    impl VisitMut for Erase {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = syn::parse_quote!(_);
                self.0 += 1;
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }
    let (mut ty, mut erase) = (ty.clone(), Erase(0));
    erase.visit_type_mut(&mut ty);
    (ty, erase.0)
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
