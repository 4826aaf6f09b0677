//! The names that a key template may use, and the expressions that its placeholders become.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{FnArg, GenericParam, Ident, LitStr, Member, Pat, PatIdent, Signature, Type};

use crate::suggest::{list, nearest};
use crate::template::{self, Piece, Placeholder};

pub(crate) enum KeyPiece {
    Text(String),
    /// An expression over the parameters, such as `order.id`.
    Value(TokenStream),
}

/// One template of a call: a key, or a key for each value of a list.
pub(crate) enum Template {
    One(Vec<KeyPiece>),
    Each { before: Vec<KeyPiece>, list: TokenStream, after: Vec<KeyPiece> },
}

/// The bytes of the literal where the compiler can tell them (nightly), or the whole literal.
fn part(template: &LitStr, at: std::ops::Range<usize>) -> Span {
    let token = template.token();
    let plain = token.to_string() == format!("\"{}\"", template.value());
    let part = if plain { token.subspan(at.start + 1..at.end + 1) } else { None };
    part.unwrap_or_else(|| template.span())
}

/// The names that a placeholder may use.
pub(crate) struct Names {
    function: Ident,
    values: Vec<Ident>,
    types: Vec<Ident>,
    const_generics: Vec<Ident>,
    /// Parameters whose type is written as one that is no list.
    single: Vec<Ident>,
    /// Parameters whose type is written as a reference.
    references: Vec<Ident>,
}

impl Names {
    pub(crate) fn of(sig: &Signature) -> Names {
        let mut names = Names {
            function: sig.ident.clone(),
            values: Vec::new(),
            types: Vec::new(),
            const_generics: Vec::new(),
            single: Vec::new(),
            references: Vec::new(),
        };
        for input in &sig.inputs {
            match input {
                FnArg::Receiver(receiver) => names.values.push(Ident::from(receiver.self_token)),
                FnArg::Typed(typed) => {
                    names.visit_pat_mut(&mut typed.pat.clone());
                    if let Pat::Ident(name) = &*typed.pat {
                        names.single.extend(is_single(&typed.ty).then(|| name.ident.clone()));
                        let is_reference = matches!(&*typed.ty, Type::Reference(_));
                        names.references.extend(is_reference.then(|| name.ident.clone()));
                    }
                }
            }
        }
        let constants = sig.generics.params.iter().filter_map(|param| match param {
            GenericParam::Const(constant) => Some(constant.ident.clone()),
            _ => None,
        });
        names.const_generics.extend(constants);
        names.values.extend(names.const_generics.iter().cloned());
        names.single.extend(names.const_generics.iter().cloned());
        names.types.extend(sig.generics.type_params().map(|param| param.ident.clone()));
        names
    }

    /// Whether it is a parameter, a name that a parameter's pattern binds, or a const generic.
    pub(crate) fn is_bound(&self, name: &Ident) -> bool {
        self.values.iter().any(|value| value.unraw() == name.unraw())
    }

    pub(crate) fn is_const_generic(&self, name: &Ident) -> bool {
        self.const_generics.contains(name)
    }

    /// Whether it is a type that the caller chooses.
    pub(crate) fn is_type(&self, name: &Ident) -> bool {
        self.types.contains(name)
    }

    /// Everything that is wrong with a template comes back at once.
    pub(crate) fn template(&self, template: &LitStr, mistakes: &mut Vec<syn::Error>) -> Template {
        let pieces = template::parse(&template.value()).unwrap_or_else(|found| {
            mistakes.extend(found.into_iter().map(|mistake| syn::Error::new(part(template, mistake.at), mistake.text)));
            Vec::new()
        });
        let (mut before, mut spread) = (Vec::new(), None);
        for piece in pieces {
            let piece = match piece {
                Piece::Text(text) => {
                    let found = self.foreign_placeholders(&text);
                    mistakes.extend(found.into_iter().map(|text| syn::Error::new(template.span(), text)));
                    KeyPiece::Text(text)
                }
                Piece::Placeholder(placeholder) => match self.resolve(&placeholder, template) {
                    Ok(list) if placeholder.spread => {
                        spread = Some((std::mem::take(&mut before), list));
                        continue;
                    }
                    Ok(value) => KeyPiece::Value(value),
                    Err(mistake) => {
                        mistakes.push(mistake);
                        continue;
                    }
                },
            };
            before.push(piece);
        }
        match spread {
            None => Template::One(before),
            Some((start, list)) => Template::Each { before: start, list, after: before },
        }
    }

    /// `order.id`, located at the key, but each name seen where it was declared: either may come from a macro.
    fn resolve(&self, placeholder: &Placeholder, template: &LitStr) -> syn::Result<TokenStream> {
        let span = part(template, placeholder.at.clone());
        let Some(value) =
            self.values.iter().find(|value| value.unraw() == placeholder.name || *value == &placeholder.name)
        else {
            return Err(syn::Error::new(span, self.unknown(&placeholder.name)));
        };
        if placeholder.spread && placeholder.fields.is_empty() && self.single.contains(value) {
            return Err(syn::Error::new(
                span,
                format!("`{value}` is not a list; for a single value write `<{value}>`"),
            ));
        }
        // The value behind the reference: for a reference, the compiler's error would not say in our words that it is
        // no list.
        let is_reference = placeholder.spread && placeholder.fields.is_empty() && self.references.contains(value);
        let mut value = value.clone();
        value.set_span(span.resolved_at(value.span()));
        let mut tokens = value.into_token_stream();
        let span = Span::mixed_site().located_at(span);
        if is_reference {
            tokens = quote_spanned!(span=> (*#tokens));
        }
        for field in &placeholder.fields {
            let field =
                member(field, span).ok_or_else(|| syn::Error::new(span, format!("`{field}` is not a field")))?;
            tokens.extend(quote_spanned!(span=> .#field));
        }
        Ok(tokens)
    }

    /// `{id}` and `#id` put a value in elsewhere. Here they are text, and nobody would see that all values share a lock.
    fn foreign_placeholders(&self, text: &str) -> Vec<String> {
        const MARKS: [char; 3] = ['{', '#', '$'];
        let (mut rest, mut mistakes) = (text, Vec::new());
        while let Some(at) = rest.find(MARKS) {
            let found = &rest[at..];
            rest = found.trim_start_matches(MARKS);
            let ends = |c: char| !(c == '_' || c == '.' || c.is_alphanumeric());
            let path = rest[..rest.find(ends).unwrap_or(rest.len())].trim_end_matches('.');
            let name = path.split('.').next().unwrap_or_default();
            if self.values.iter().any(|value| value.unraw() == name) {
                let end = found.len() - rest.len() + path.len();
                let written = &found[..end + usize::from(found[end..].starts_with('}'))];
                mistakes.push(format!(
                    "`{written}` is plain text in a key, so all values of `{path}` would share one lock: write `<{path}>`"
                ));
            }
        }
        mistakes
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

/// Whether the type is surely no list. Of a type with a name of its own nobody knows.
fn is_single(ty: &Type) -> bool {
    const SINGLE: [&str; 17] = [
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "bool", "char", "str",
        "String", "Uuid",
    ];
    match ty {
        Type::Reference(reference) => is_single(&reference.elem),
        Type::Group(group) => is_single(&group.elem),
        Type::Path(path) => path.path.get_ident().is_some_and(|name| SINGLE.iter().any(|single| name == single)),
        _ => false,
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
