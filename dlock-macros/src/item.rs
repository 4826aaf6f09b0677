//! The item under the attribute: a function whose body is not looked into.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, GenericArgument, PathArguments, ReturnType, Signature, Token, Type, TypeParamBound, Visibility};

use crate::lazy;
use crate::table::AttributeSpec;

/// A function as it was written. Its body stays tokens, so that rustc and the editor read the user's own text.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Option<Body>,
}

/// The body that runs under the lock, and the type that it returns.
pub(crate) struct Locked {
    pub(crate) body: Body,
    pub(crate) output: Type,
    pub(crate) shape: Shape,
}

pub(crate) enum Shape {
    Async,
    /// The form that `#[async_trait]` makes: the async block stands in a call of this `Box::pin`.
    Boxed(TokenStream),
    Sync,
}

impl Shape {
    pub(crate) fn is_sync(&self) -> bool {
        matches!(self, Shape::Sync)
    }
}

pub(crate) struct Body {
    pub(crate) tokens: TokenStream,
    pub(crate) span: Span,
}

impl Function {
    pub(crate) fn parse(attribute: &str, item: TokenStream) -> syn::Result<Function> {
        syn::parse2(item.clone()).map_err(|error| match item_keyword(item) {
            Some(word) => syn::Error::new(word.span(), format!("#[{attribute}] goes on a function, not on `{word}`")),
            None => error,
        })
    }

    /// Finds what runs in the function, or says why nothing in it can be run under the attribute.
    pub(crate) fn locked(&mut self, spec: &AttributeSpec) -> syn::Result<Locked> {
        let (sig, attribute) = (&self.sig, spec.attribute);
        if let Some(token) = &sig.constness {
            let text =
                format!("#[{attribute}] works at run time, and a `const fn` may run before that: drop the `const`");
            return Err(syn::Error::new_spanned(token, text));
        }
        if let Some(abi) = &sig.abi {
            let text = format!(
                "#[{attribute}] cannot stand on an `extern` function: put it on a Rust function that this one calls"
            );
            return Err(syn::Error::new_spanned(abi, text));
        }
        if let Some(attr) = self.attrs.iter().find(|attr| is_track_caller(attr)) {
            let text = format!(
                "`#[track_caller]`: the body runs in a closure under #[{attribute}], which cannot see the caller: \
                 take a `&'static Location` as a parameter, and let a `#[track_caller]` function around this one pass it on"
            );
            return Err(syn::Error::new_spanned(attr, text));
        }
        if let Some(variadic) = &sig.variadic {
            let text = format!("#[{attribute}] cannot pass on variadic arguments: put it on a function without them");
            return Err(syn::Error::new_spanned(variadic, text));
        }
        let Some(body) = self.body.take() else {
            let text =
                format!("this function has no body that could be run: put #[{attribute}] on the function in the impl");
            return Err(syn::Error::new_spanned(&sig.ident, text));
        };
        let locked = match async_trait_shape(sig, &body) {
            Some(locked) => locked,
            None => {
                let shape = if sig.asyncness.is_some() { Shape::Async } else { Shape::Sync };
                Locked { body, output: output(sig), shape }
            }
        };
        if lazy::is_lazy(&locked.output) {
            return Err(lazy::mistake(&locked.output, spec.too_early));
        }
        Ok(locked)
    }
}

impl Parse for Function {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        if input.parse::<Option<Token![;]>>()?.is_some() {
            return Ok(Function { attrs, vis, sig, body: None });
        }
        let inside;
        let span = syn::braced!(inside in input).span.join();
        attrs.extend(inside.call(Attribute::parse_inner)?.into_iter().map(outer));
        let body = Some(Body { tokens: inside.parse()?, span });
        Ok(Function { attrs, vis, sig, body })
    }
}

/// `#![allow(…)]` at the start of a body means the same above the function, where it also covers what we add.
fn outer(attribute: Attribute) -> Attribute {
    Attribute { style: syn::AttrStyle::Outer, ..attribute }
}

/// Also behind `cfg_attr`.
fn is_track_caller(attr: &Attribute) -> bool {
    let is_it = |token: TokenTree| matches!(token, TokenTree::Ident(word) if word == "track_caller");
    attr.path().is_ident("track_caller")
        || attr.path().is_ident("cfg_attr")
            && attr.meta.to_token_stream().into_iter().any(|token| match token {
                TokenTree::Group(group) => group.stream().into_iter().any(is_it),
                token => is_it(token),
            })
}

/// The word that says what kind of item this is; none if it is a function after all.
fn item_keyword(item: TokenStream) -> Option<Ident> {
    const ITEMS: [&str; 13] = [
        "fn",
        "struct",
        "enum",
        "union",
        "trait",
        "impl",
        "mod",
        "static",
        "const",
        "type",
        "use",
        "extern",
        "macro_rules",
    ];
    let word = item.into_iter().find_map(|token| match token {
        TokenTree::Ident(word) if ITEMS.iter().any(|item| word == item) => Some(word),
        _ => None,
    });
    word.filter(|word| word != "fn")
}

/// The return type as written; `()` is spanned on the name, there is nothing nearer to point at.
fn output(sig: &Signature) -> Type {
    match &sig.output {
        ReturnType::Type(_, ty) => (**ty).clone(),
        ReturnType::Default => syn::parse_quote_spanned!(sig.ident.span()=> ()),
    }
}

/// `fn(…) -> Pin<Box<dyn Future<Output = T> + 'async_trait>> { Box::pin(async move { … }) }`, and nothing beside it.
fn async_trait_shape(sig: &Signature, body: &Body) -> Option<Locked> {
    let ReturnType::Type(_, pin) = &sig.output else { return None };
    let Type::TraitObject(object) = argument_of(argument_of(pin, "Pin")?, "Box")? else { return None };
    let is_async_trait =
        |bound: &TypeParamBound| matches!(bound, TypeParamBound::Lifetime(name) if name.ident == "async_trait");
    if !object.bounds.iter().any(is_async_trait) {
        return None;
    }
    let output = object.bounds.iter().find_map(future_output)?;

    let mut tokens: Vec<TokenTree> = body.tokens.clone().into_iter().collect();
    let Some(TokenTree::Group(call)) = tokens.pop() else { return None };
    let path: String = tokens.iter().map(ToString::to_string).collect();
    let [TokenTree::Ident(first), TokenTree::Ident(second), TokenTree::Group(block)] =
        &call.stream().into_iter().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let is_pin = matches!(path.as_str(), "Box::pin" | "::std::boxed::Box::pin");
    if !is_pin || first != "async" || second != "move" || block.delimiter() != Delimiter::Brace {
        return None;
    }
    let body = Body { tokens: block.stream(), span: block.span() };
    Some(Locked { body, output, shape: Shape::Boxed(tokens.into_iter().collect()) })
}

/// `T` of `name<T>`.
fn argument_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// `T` of `Future<Output = T>`.
fn future_output(bound: &TypeParamBound) -> Option<Type> {
    let TypeParamBound::Trait(bound) = bound else { return None };
    let last = bound.path.segments.last().filter(|last| last.ident == "Future")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(item) if item.ident == "Output" => Some(item.ty.clone()),
        _ => None,
    })
}
