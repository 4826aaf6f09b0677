//! What the values that are expressions may name. Those that the compiler works out are a part of the function, so
//! nothing of a call can stand in them.

use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprPath};

use crate::args::{Args, Dialect, Place, Said};
use crate::key_values::Key;
use crate::names::Names;
use crate::values::{Given, Kind, Renew};

/// Each is checked as soon as it can be: what a `const` gives, by the compiler; whether it fits the others, by `verify()`.
pub(crate) fn check(dialect: &Dialect, args: &Args, names: &Names, mistakes: &mut Vec<syn::Error>) {
    let times = [&args.max_hold, &args.timeout, &args.min_hold, &args.once_per, &args.offset];
    let counts = [&args.attempts, &args.max_waiters, &args.retries];
    let mut found: Vec<(&Place, &Expr)> = Vec::new();
    found.extend(times.into_iter().filter_map(|said| expr(said.as_ref()?)));
    found.extend(counts.into_iter().filter_map(|said| expr(said.as_ref()?)));
    if let Some(Said { value: Renew::Every(Given::Expr(every)), place }) = &args.renew {
        found.push((place, every));
    }
    if let Some(Said { value: Kind::Permits(Given::Expr(permits)), place }) = &args.kind {
        found.push((place, permits));
    }
    per_call(dialect, args, names, mistakes);
    for (place, value) in found {
        let forms = dialect.table.iter().find(|row| row.name == place.word).map_or("", |row| row.forms);
        if let Some(why) = why_not(value, names) {
            let text = format!("`{}`: {why}; write {forms}", place.word);
            mistakes.push(syn::Error::new_spanned(value, text));
        }
    }
}

/// What an expression of a call may name: whoever writes a single small word that is no parameter has forgotten the quotes.
fn per_call(dialect: &Dialect, args: &Args, names: &Names, mistakes: &mut Vec<syn::Error>) {
    let computed = args.key.as_ref().and_then(|key| match &key.value {
        Key::Computed(value) => Some((&key.place, &**value)),
        Key::Template(_) => None,
    });
    let found = [
        computed,
        args.ttl.as_ref().and_then(expr),
        args.wait.as_ref().and_then(expr),
        args.backend.as_ref().and_then(expr),
    ];
    for (place, value) in found.into_iter().flatten() {
        let Expr::Path(path) = value else { continue };
        let Some(name) = path.path.get_ident().filter(|name| *name != "self" && !names.bind(name)) else { continue };
        if name.unraw().to_string().starts_with(char::is_lowercase) {
            let forms = dialect.table.iter().find(|row| row.name == place.word).map_or("", |row| row.forms);
            let text = format!("`{}`: `{name}` is no parameter of the function; write {forms}", place.word);
            mistakes.push(syn::Error::new_spanned(value, text));
        }
    }
}

fn expr<T>(said: &Said<Given<T>>) -> Option<(&Place, &Expr)> {
    said.value.expr().map(|value| (&said.place, value))
}

fn why_not(value: &Expr, names: &Names) -> Option<String> {
    let mut seeker = Seeker { names, found: None };
    seeker.visit_expr_mut(&mut value.clone());
    let word = match value {
        Expr::Path(path) => path.path.get_ident().map(IdentExt::unraw),
        _ => None,
    };
    // Whoever writes a single small word means one of ours.
    let unknown = word.filter(|word| !word.to_string().starts_with(char::is_uppercase));
    seeker.found.or(unknown.map(|word| format!("`{word}` is not known")))
}

/// Seeks what belongs to a call.
struct Seeker<'a> {
    names: &'a Names,
    found: Option<String>,
}

impl VisitMut for Seeker<'_> {
    fn visit_expr_path_mut(&mut self, path: &mut ExprPath) {
        if let Some(first) = path.path.segments.first().map(|first| &first.ident) {
            if first == "Self" || self.names.is_type(first) {
                let text = "`{}` cannot stand here, since the value is the same for every type: name a type, as in `Limits::LONGEST`";
                self.found = Some(text.replace("{}", &first.to_string()));
            } else if path.path.segments.len() == 1 && self.names.bind(first) {
                let text = "`{}` is known in a call only, and this is worked out when the program is compiled";
                self.found = Some(text.replace("{}", &first.to_string()));
            }
        }
        visit_mut::visit_expr_path_mut(self, path);
    }
}
