//! Moves every argument into the block that runs under the lock, as the compiler does it for its own async functions.
//!
//! A closure takes along only what its body names. Without this, the rest would be dropped after the release. Each
//! argument is bound before its pattern, in the order of the parameters. So they are dropped in the order of a plain
//! function.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, FnArg, Ident, Pat, PatIdent, PatType, Receiver, ReceiverKind, Signature, Type};

use crate::busy::Busy;
use crate::item::Shape;
use crate::table::Args;
use crate::template::{self, Piece};

/// How the arguments come to the key and to the body.
#[derive(Default)]
pub(crate) struct Arguments {
    /// For the call: the names in patterns that its keys use.
    pub(crate) for_call: TokenStream,
    /// For the body: every argument.
    pub(crate) for_body: TokenStream,
}

impl Arguments {
    /// Takes out of the signature what is bound in the block instead: patterns and `mut`.
    pub(crate) fn take(
        sig: &mut Signature,
        shape: &Shape,
        attrs: &[Attribute],
        uses: &Uses,
        on_busy: &Busy,
        mistakes: &mut Vec<syn::Error>,
    ) -> Arguments {
        // The block of `#[async_trait]` binds them already.
        if matches!(shape, Shape::Boxed(_)) {
            return Arguments::default();
        }
        let mut binder = Binder {
            uses,
            is_passed_on: matches!(on_busy, Busy::Call { .. }),
            below: macro_below(attrs),
            mistakes,
            made: Arguments::default(),
        };
        for (number, input) in sig.inputs.iter_mut().enumerate() {
            match input {
                FnArg::Receiver(receiver) => binder.receiver(receiver),
                FnArg::Typed(typed) => binder.parameter(typed, number),
            }
        }
        binder.made
    }
}

struct Binder<'a> {
    uses: &'a Uses,
    /// Whether a fallback gets the arguments, by their names.
    is_passed_on: bool,
    /// The attribute macro that expands after this one, and reads the parameters.
    below: Option<String>,
    mistakes: &'a mut Vec<syn::Error>,
    made: Arguments,
}

impl Binder<'_> {
    /// `self` cannot be bound again. A borrow of the whole `self` makes the body capture all of it, not only the fields that
    /// the body names.
    fn receiver(&mut self, receiver: &Receiver) {
        if !matches!(receiver.kind, ReceiverKind::Reference(..)) {
            let this = receiver.self_token;
            self.made.for_body.extend(quote_spanned!(Span::mixed_site()=> let _ = &#this;));
        }
    }

    fn parameter(&mut self, typed: &mut PatType, number: usize) {
        // A reference drops nothing.
        if matches!(&*typed.ty, Type::Reference(_)) {
            return;
        }
        let (attrs, in_body) = split(&typed.attrs);
        typed.attrs = attrs;
        let mut names = NamesOf::default();
        names.visit_pat_mut(&mut typed.pat.clone());
        let reason = self.reason_to_keep(&names.found);
        if let Pat::Ident(name) = &mut *typed.pat
            && name.by_ref.is_none()
            && name.subpat.is_none()
            && (self.is_passed_on || reason.is_some() || !is_underscored(&name.ident))
        {
            return self.name(name, &in_body);
        }
        match reason {
            Some(reason) if names.leaves_parts => self.mistakes.push(kept_mistake(&typed.pat, &reason)),
            Some(_) => {
                let mut taken = TakeMut(Vec::new());
                taken.visit_pat_mut(&mut typed.pat);
                for mut name in taken.0 {
                    self.name(&mut name, &in_body);
                }
            }
            None => self.pattern(typed, number, &names.found, &in_body),
        }
    }

    /// `let mut name = name;`, where a lint about the name sees the user's own tokens.
    fn name(&mut self, name: &mut PatIdent, attrs: &[Attribute]) {
        let (mutability, ident) = (name.mutability.take(), &name.ident);
        self.made.for_body.extend(quote_spanned! {Span::mixed_site()=>
            #(#attrs)* let #mutability #ident = #ident;
        });
        self.used(ident, attrs);
    }

    /// The whole argument under a name of ours, and then its pattern.
    fn pattern(&mut self, typed: &mut PatType, number: usize, names: &[Ident], attrs: &[Attribute]) {
        let whole = format_ident!("__dlock_arg{number}", span = Span::mixed_site());
        let pattern = std::mem::replace(&mut *typed.pat, syn::parse_quote!(#whole));
        // Clippy would call the binding of an underscored name to another name one without an effect.
        let value = match &pattern {
            Pat::Ident(name) if name.subpat.is_none() && name.by_ref.is_none() => {
                quote_spanned!(Span::mixed_site()=> ::core::convert::identity(#whole))
            }
            _ => whole.to_token_stream(),
        };
        self.made.for_body.extend(quote_spanned! {Span::mixed_site()=>
            #(#attrs)* let #whole = #whole;
            #(#attrs)* let #pattern = #value;
        });
        if names.iter().any(|name| self.uses.in_template(name)) {
            let mut borrowing = pattern;
            Borrowing(self.uses).visit_pat_mut(&mut borrowing);
            self.made.for_call.extend(quote_spanned! {Span::mixed_site()=> #(#attrs)* let #borrowing = &#whole; });
        }
        for name in names {
            self.used(name, attrs);
        }
    }

    /// A name that the key uses is used, also if the body does not name it.
    fn used(&mut self, name: &Ident, attrs: &[Attribute]) {
        if self.uses.anywhere(name) {
            self.made.for_body.extend(quote_spanned!(Span::mixed_site()=> #(#attrs)* let _ = &#name;));
        }
    }

    /// Why the pattern must stay in the signature, if it must.
    fn reason_to_keep(&self, names: &[Ident]) -> Option<String> {
        if let Some(name) = names.iter().find(|name| self.uses.in_expression(name)) {
            return Some(format!("an expression in the attribute uses `{name}` as the pattern gives it"));
        }
        self.below.as_ref().map(|below| format!("#[{below}] below reads the parameters as they are"))
    }
}

/// Such a name is not to be read, also not by us: clippy would report it in the user's code.
fn is_underscored(name: &Ident) -> bool {
    let name = name.to_string();
    name.starts_with('_') && !name.starts_with("__")
}

fn kept_mistake(pattern: &Pat, reason: &str) -> syn::Error {
    let text = format!(
        "what this pattern does not bind would be dropped without the lock, because {reason}: \
         write `name: Type` here, and take it apart in the body"
    );
    syn::Error::new_spanned(pattern, text)
}

/// The attributes that stay on the parameter, and those for its name in the body.
fn split(attrs: &[Attribute]) -> (Vec<Attribute>, Vec<Attribute>) {
    const LINTS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];
    let is_one_of = |attr: &Attribute, names: &[&str]| names.iter().any(|name| attr.path().is_ident(name));
    let stay = attrs.iter().filter(|attr| !is_one_of(attr, &LINTS)).cloned().collect();
    let go = attrs.iter().filter(|attr| is_one_of(attr, &LINTS) || is_one_of(attr, &["cfg", "cfg_attr"]));
    (stay, go.cloned().collect())
}

/// The first attribute below that may be a macro: all above it were expanded before.
fn macro_below(attrs: &[Attribute]) -> Option<String> {
    const BUILT_IN: [&str; 18] = [
        "allow",
        "automatically_derived",
        "cfg",
        "cold",
        "deny",
        "deprecated",
        "doc",
        "expect",
        "forbid",
        "ignore",
        "inline",
        "link_section",
        "must_use",
        "no_mangle",
        "should_panic",
        "target_feature",
        "unsafe",
        "warn",
    ];
    const TOOLS: [&str; 4] = ["clippy", "diagnostic", "rust_analyzer", "rustfmt"];
    let may_be_macro = |attr: &&Attribute| match attr.path().get_ident() {
        Some(name) => !BUILT_IN.iter().any(|known| name == known),
        None => attr.path().segments.first().is_none_or(|first| !TOOLS.iter().any(|tool| first.ident == tool)),
    };
    let path = attrs.iter().find(may_be_macro)?.path();
    Some(path.to_token_stream().to_string().replace(' ', ""))
}

/// The names that the keys and the expressions of a call use.
pub(crate) struct Uses {
    templates: Vec<String>,
    expressions: Vec<String>,
}

impl Uses {
    pub(crate) fn of(args: &Args) -> Uses {
        let templates = args.templates().filter_map(|template| template::parse(&template.value()).ok()).flatten();
        let names = templates.filter_map(|piece| match piece {
            Piece::Placeholder(placeholder) => Some(placeholder.name.trim_start_matches("r#").to_owned()),
            Piece::Text(_) => None,
        });
        let mut uses = Uses { templates: names.collect(), expressions: Vec::new() };
        for (_, expression) in args.per_call() {
            words(expression.to_token_stream(), &mut uses.expressions);
        }
        uses
    }

    fn in_template(&self, name: &Ident) -> bool {
        self.templates.contains(&name.unraw().to_string())
    }

    fn in_expression(&self, name: &Ident) -> bool {
        self.expressions.contains(&name.unraw().to_string())
    }

    fn anywhere(&self, name: &Ident) -> bool {
        self.in_template(name) || self.in_expression(name)
    }
}

/// Every word in an expression, also in its literals: `format!("{id}")` uses `id`.
fn words(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => words(group.stream(), found),
            TokenTree::Ident(ident) => found.push(ident.unraw().to_string()),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                found.extend(text.split(|c: char| c != '_' && !c.is_alphanumeric()).map(str::to_owned));
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// The names that a pattern binds, and whether it leaves a part of the argument where it is.
#[derive(Default)]
struct NamesOf {
    found: Vec<Ident>,
    leaves_parts: bool,
}

impl VisitMut for NamesOf {
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        self.leaves_parts |= match pattern {
            Pat::Wild(_) | Pat::Rest(_) | Pat::Macro(_) | Pat::Verbatim(_) => true,
            Pat::Struct(pattern) => pattern.rest.is_some(),
            Pat::Ident(name) => name.by_ref.is_some(),
            _ => false,
        };
        visit_mut::visit_pat_mut(self, pattern);
    }

    fn visit_pat_ident_mut(&mut self, name: &mut PatIdent) {
        self.found.push(name.ident.clone());
        visit_mut::visit_pat_ident_mut(self, name);
    }
}

/// The names of a pattern that stays in the signature, with their `mut`, which does not stay there.
struct TakeMut(Vec<PatIdent>);

impl VisitMut for TakeMut {
    fn visit_pat_ident_mut(&mut self, name: &mut PatIdent) {
        let taken = PatIdent { attrs: Vec::new(), by_ref: None, subpat: None, ..name.clone() };
        name.mutability = None;
        self.0.push(taken);
        visit_mut::visit_pat_ident_mut(self, name);
    }
}

/// Turns a pattern into one that borrows the names which the key uses, and nothing else. It is matched against a
/// reference, so `&`, `ref` and `mut` are left out.
struct Borrowing<'a>(&'a Uses);

impl VisitMut for Borrowing<'_> {
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        match pattern {
            Pat::Reference(reference) => *pattern = (*reference.pat).clone(),
            Pat::Macro(_) | Pat::Verbatim(_) => *pattern = syn::parse_quote!(_),
            Pat::Ident(name) if !self.0.in_template(&name.ident) => {
                *pattern = match name.subpat.take() {
                    Some((_, inner)) => *inner,
                    None => syn::parse_quote!(_),
                };
            }
            Pat::Ident(name) => {
                name.by_ref = None;
                name.mutability = None;
                return visit_mut::visit_pat_ident_mut(self, name);
            }
            _ => return visit_mut::visit_pat_mut(self, pattern),
        }
        self.visit_pat_mut(pattern);
    }

    /// `Order { id }` stays short only while it binds `id`.
    fn visit_field_pat_mut(&mut self, field: &mut syn::FieldPat) {
        visit_mut::visit_field_pat_mut(self, field);
        if !matches!(*field.pat, Pat::Ident(_)) {
            field.colon_token.get_or_insert_default();
        }
    }
}
