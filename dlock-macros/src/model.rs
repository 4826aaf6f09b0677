//! The function to be locked, with everything checked. What is in here can be expanded.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, FnArg, GenericParam, Ident, LitStr, Member, Meta, PatIdent, Signature, Visibility};

use crate::args::{Args, Renew, Spanned, Wait, list, nearest};
use crate::item::{Function, Locked};
use crate::template::{self, Piece, Placeholder};

pub(crate) struct LockedFn {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) locked: Locked,
    pub(crate) template: LitStr,
    pub(crate) key: Vec<KeyPiece>,
    pub(crate) backend: Option<Expr>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Wait>,
    pub(crate) renew: Option<Renew>,
}

pub(crate) enum KeyPiece {
    Text(String),
    /// An expression over the parameters, such as `order.id`.
    Value(TokenStream),
}

impl LockedFn {
    /// Every mistake of the attribute and of the function comes back at once.
    pub(crate) fn new(attribute: TokenStream, item: TokenStream) -> Result<LockedFn, Vec<syn::Error>> {
        let mut mistakes = Vec::new();
        let args = Args::parse(attribute, &mut mistakes);
        check_renewal(&args, &mut mistakes);
        let function = keep(Function::parse(item), &mut mistakes);
        let (Some(mut function), Some(template)) = (function, args.key) else { return Err(mistakes) };

        check_second_lock(&function.attrs, &template, &mut mistakes);
        let locked = keep(function.locked(), &mut mistakes);
        let key = key_pieces(&template, &Names::of(&function.sig), &mut mistakes);
        let Function { attrs, vis, sig, .. } = function;
        match locked {
            Some(locked) if mistakes.is_empty() => Ok(LockedFn {
                attrs,
                vis,
                sig,
                locked,
                template,
                key,
                backend: args.backend,
                ttl: args.ttl.map(|ttl| ttl.value),
                wait: args.wait,
                renew: args.renew.map(|renew| renew.value),
            }),
            _ => Err(mistakes),
        }
    }
}

fn keep<T>(result: syn::Result<T>, mistakes: &mut Vec<syn::Error>) -> Option<T> {
    result.map_err(|mistake| mistakes.push(mistake)).ok()
}

fn check_renewal(args: &Args, mistakes: &mut Vec<syn::Error>) {
    if let (Some(ttl), Some(Spanned { value: Renew::Every(every), tokens })) = (&args.ttl, &args.renew)
        && *every >= ttl.value
    {
        let text = "`renew`: the lock would run out before its first renewal; renew more often than once per ttl";
        mistakes.push(syn::Error::new_spanned(tokens, text));
    }
}

/// A second lock on the same key would wait for the first one, which is ours.
fn check_second_lock(attrs: &[Attribute], template: &LitStr, mistakes: &mut Vec<syn::Error>) {
    for attr in attrs {
        let Meta::List(list) = &attr.meta else { continue };
        if list.path.segments.last().is_none_or(|name| name.ident != "distributed_lock") {
            continue;
        }
        let other = Args::parse(list.tokens.clone(), &mut Vec::new());
        if let Some(key) = other.key.filter(|key| key.value() == template.value()) {
            let text = "this function already takes the lock with this key: remove one of the two attributes";
            mistakes.push(syn::Error::new(key.span(), text));
        }
    }
}

fn key_pieces(template: &LitStr, names: &Names, mistakes: &mut Vec<syn::Error>) -> Vec<KeyPiece> {
    let pieces = template::parse(&template.value()).unwrap_or_else(|found| {
        mistakes.extend(found.into_iter().map(|mistake| syn::Error::new(part(template, mistake.at), mistake.text)));
        Vec::new()
    });
    let resolve = |piece| match piece {
        Piece::Text(text) => Some(KeyPiece::Text(text)),
        Piece::Placeholder(placeholder) => keep(names.resolve(&placeholder, template), mistakes).map(KeyPiece::Value),
    };
    pieces.into_iter().filter_map(resolve).collect()
}

/// The bytes of the literal where the compiler can tell them (nightly), or the whole literal.
fn part(template: &LitStr, at: std::ops::Range<usize>) -> Span {
    let token = template.token();
    let plain = token.to_string() == format!("\"{}\"", template.value());
    let part = if plain { token.subspan(at.start + 1..at.end + 1) } else { None };
    part.unwrap_or_else(|| template.span())
}

/// What a placeholder may name.
struct Names {
    function: Ident,
    values: Vec<Ident>,
}

impl Names {
    fn of(sig: &Signature) -> Names {
        let mut names = Names { function: sig.ident.clone(), values: Vec::new() };
        for input in &sig.inputs {
            match input {
                FnArg::Receiver(receiver) => names.values.push(Ident::from(receiver.self_token)),
                FnArg::Typed(typed) => names.visit_pat_mut(&mut typed.pat.clone()),
            }
        }
        let constants = sig.generics.params.iter().filter_map(|param| match param {
            GenericParam::Const(constant) => Some(constant.ident.clone()),
            _ => None,
        });
        names.values.extend(constants);
        names
    }

    /// `order.id`, located at the key, but each name seen where it was declared: either may come from a macro.
    fn resolve(&self, placeholder: &Placeholder, template: &LitStr) -> syn::Result<TokenStream> {
        let span = part(template, placeholder.at.clone());
        let Some(value) =
            self.values.iter().find(|value| value.unraw() == placeholder.name || *value == &placeholder.name)
        else {
            return Err(syn::Error::new(span, self.unknown(&placeholder.name)));
        };
        let mut value = value.clone();
        value.set_span(span.resolved_at(value.span()));
        let mut tokens = value.into_token_stream();
        let span = Span::mixed_site().located_at(span);
        for field in &placeholder.fields {
            let field =
                member(field, span).ok_or_else(|| syn::Error::new(span, format!("`{field}` is not a field")))?;
            tokens.extend(quote_spanned!(span=> .#field));
        }
        Ok(tokens)
    }

    fn unknown(&self, name: &str) -> String {
        let values: Vec<String> = self.values.iter().map(|value| value.unraw().to_string()).collect();
        let values = || values.iter().map(String::as_str);
        let function = &self.function;
        if values().any(|value| value.starts_with("__arg")) {
            return format!(
                "no parameter named `{name}`; under #[async_trait] a key cannot use names bound by a pattern: \
                 give the parameter one name and use its fields"
            );
        }
        match (nearest(name, values()), values().next()) {
            (_, None) => format!("no parameter named `{name}`; `{function}` has no parameters"),
            (Some(near), _) => {
                format!("no parameter named `{name}`; did you mean `{near}`? `{function}` has {}", list(values()))
            }
            (None, _) => format!("no parameter named `{name}`; `{function}` has {}", list(values())),
        }
    }
}

/// Every name that a pattern binds: `Path(id)`, `(a, b)`, `Foo { id, .. }`.
impl VisitMut for Names {
    fn visit_pat_ident_mut(&mut self, pat: &mut PatIdent) {
        self.values.push(pat.ident.clone());
        visit_mut::visit_pat_ident_mut(self, pat);
    }
}

fn member(field: &str, span: Span) -> Option<Member> {
    let member = syn::parse_str(field).or_else(|_| syn::parse_str(&format!("r#{field}"))).ok()?;
    Some(match member {
        Member::Named(mut name) => {
            name.set_span(span);
            Member::Named(name)
        }
        Member::Unnamed(mut index) => {
            index.span = span;
            Member::Unnamed(index)
        }
    })
}
