//! Checks the names in values that are expressions. Expressions that the compiler works out are a part of the function,
//! so they cannot use anything of a call.

use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprPath, Ident};

use crate::names::Names;
use crate::table::{Args, AttributeSpec};

/// Each is checked as soon as it can be: what a `const` gives, by the compiler; whether it fits the others, by `verify()`.
pub(crate) fn check(spec: &AttributeSpec, args: &Args, names: &Names, mistakes: &mut Vec<syn::Error>) {
    per_call(spec, args, names, mistakes);
    for (location, value) in spec.table.iter().filter_map(|row| (row.constant)(args)) {
        if let Some(why) = why_not(value, names) {
            let word = location.word;
            let text = match why {
                WhyNot::Call(name) => format!(
                    "`{name}` is known in a call only, and this is worked out when the program is compiled; write {}",
                    forms(spec, word)
                ),
                WhyNot::Unknown(name) => format!("`{name}` is not a `const`; write {}", forms(spec, word)),
                WhyNot::ConstGeneric(name) => {
                    let is_count = forms(spec, word).contains("u32");
                    let literal = if is_count { "a number" } else { "a duration in quotes" };
                    format!(
                        "`{name}` is a const generic of this function, and this value must be the same for all of its instances: \
                         write {literal}, or a `const` item outside of the function"
                    )
                }
                WhyNot::Type => "`Self` and type parameters cannot be used here: write the concrete type".into(),
            };
            mistakes.push(syn::Error::new_spanned(value, format!("`{word}`: {text}")));
        }
    }
}

/// Checks the expressions of a call. A single word in lower case that is no parameter is a name without its quotes.
fn per_call(spec: &AttributeSpec, args: &Args, names: &Names, mistakes: &mut Vec<syn::Error>) {
    for (location, value) in args.per_call() {
        let Expr::Path(path) = value else { continue };
        let Some(name) = path.path.get_ident().filter(|name| *name != "self" && !names.is_bound(name)) else {
            continue;
        };
        if name.unraw().to_string().starts_with(char::is_lowercase) {
            let word = location.word;
            let advice = if ["key", "backend"].contains(&word) {
                format!("if that is the name itself, put it in quotes: `{word} = \"{name}\"`")
            } else {
                format!("write {}", forms(spec, word))
            };
            let text = format!("`{word}`: there is no parameter `{name}`; {advice}");
            mistakes.push(syn::Error::new_spanned(value, text));
        }
    }
}

fn forms(spec: &AttributeSpec, option: &str) -> &'static str {
    spec.table.iter().find(|row| row.name == option).map_or("", |row| row.forms)
}

/// Why the compiler could not work a value out.
enum WhyNot {
    Call(Ident),
    ConstGeneric(Ident),
    Type,
    Unknown(Ident),
}

fn why_not(value: &Expr, names: &Names) -> Option<WhyNot> {
    let mut seeker = NameSeeker { names, found: None };
    seeker.visit_expr_mut(&mut value.clone());
    let word = match value {
        Expr::Path(path) => path.path.get_ident().map(IdentExt::unraw),
        _ => None,
    };
    // A single word in lower case is a misspelt word of the option.
    let unknown = word.filter(|word| !word.to_string().starts_with(char::is_uppercase));
    seeker.found.or(unknown.map(WhyNot::Unknown))
}

/// Looks for names that belong to a call.
struct NameSeeker<'a> {
    names: &'a Names,
    found: Option<WhyNot>,
}

impl VisitMut for NameSeeker<'_> {
    fn visit_expr_path_mut(&mut self, path: &mut ExprPath) {
        if let Some(first) = path.path.segments.first().map(|first| &first.ident) {
            if first == "Self" || self.names.is_type(first) {
                self.found = Some(WhyNot::Type);
            } else if path.path.segments.len() == 1 && self.names.is_const_generic(first) {
                self.found = Some(WhyNot::ConstGeneric(first.clone()));
            } else if path.path.segments.len() == 1 && self.names.is_bound(first) {
                self.found = Some(WhyNot::Call(first.clone()));
            }
        }
        visit_mut::visit_expr_path_mut(self, path);
    }
}
