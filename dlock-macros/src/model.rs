//! The function to be locked, with everything checked. What is in here can be expanded.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::{Attribute, Expr, Ident, LitStr, Meta, Path, Signature, Visibility};

use crate::arguments::{Arguments, Uses};
use crate::busy::{Busy, busy};
use crate::checks;
use crate::expressions;
use crate::item::{Function, Locked};
use crate::key_values::Key;
use crate::names::{KeyPiece, Names, Template};
use crate::reader::read;
use crate::table::{Args, AttributeSpec};
use crate::values::{Given, Wait};
use crate::written::{Parsed, note_mistake, parsed, value};

pub(crate) struct LockedFn {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) locked: Locked,
    pub(crate) arguments: Arguments,
    /// Where the runtime is.
    pub(crate) runtime: Path,
    pub(crate) keys: Keys,
    pub(crate) on_busy: Busy,
    /// The other options, as they were given.
    pub(crate) args: Args,
}

pub(crate) enum Keys {
    One(LitStr, Vec<KeyPiece>),
    Several(Vec<(LitStr, Template)>),
    Computed(Box<Expr>),
}

impl LockedFn {
    /// Every mistake of the attribute and of the function comes back at once.
    pub(crate) fn new(
        spec: &AttributeSpec,
        attribute: TokenStream,
        item: TokenStream,
    ) -> Result<LockedFn, Vec<syn::Error>> {
        let mut mistakes = Vec::new();
        let mut args = read(spec, attribute, &mut mistakes);
        (spec.complete)(&mut args);
        checks::options(&args, &mut mistakes);
        let Some(mut function) = note_mistake(Function::parse(spec.attribute, item), &mut mistakes) else {
            return Err(mistakes);
        };

        check_second_lock(&function.attrs, &args, &mut mistakes);
        let locked = note_mistake(function.locked(spec), &mut mistakes);
        if let Some(locked) = &locked {
            checks::shape(&args, &locked.shape, &mut mistakes);
        }
        let names = Names::of(&function.sig);
        checks::names(&args, &names, &mut mistakes);
        expressions::check(spec, &args, &names, &mut mistakes);
        let uses = Uses::of(&args);
        let keys = keys(spec, args.key.take(), args.keys.take(), &names, &mut mistakes);
        let on_busy = busy(args.on_busy.take(), &function.sig, &mut mistakes);
        let Function { attrs, vis, mut sig, .. } = function;
        let shape = locked.as_ref().map(|locked| &locked.shape);
        let arguments = shape.map(|shape| Arguments::take(&mut sig, shape, &attrs, &uses, &on_busy, &mut mistakes));
        let (Some(locked), Some(arguments), Some(keys), true) = (locked, arguments, keys, mistakes.is_empty()) else {
            return Err(mistakes);
        };
        let runtime =
            value(args.krate.take()).unwrap_or_else(|| syn::parse_quote_spanned!(Span::mixed_site()=> ::dlock));
        Ok(LockedFn { attrs, vis, sig, locked, arguments, runtime, keys, on_busy, args })
    }

    pub(crate) fn backend(&self) -> Option<&Given<String>> {
        parsed(&self.args.backend)
    }

    pub(crate) fn ttl(&self) -> Option<&Given<Duration>> {
        parsed(&self.args.ttl)
    }

    pub(crate) fn wait(&self) -> Option<&Given<Wait>> {
        parsed(&self.args.wait)
    }

    pub(crate) fn name(&self) -> Option<&String> {
        parsed(&self.args.name)
    }

    pub(crate) fn guard(&self) -> Option<&Ident> {
        parsed(&self.args.guard)
    }

    pub(crate) fn fence(&self) -> Option<&Ident> {
        parsed(&self.args.fence)
    }

    pub(crate) fn skips_outage(&self) -> bool {
        parsed(&self.args.on_outage).copied().unwrap_or(false)
    }
}

fn keys(
    spec: &AttributeSpec,
    key: Option<Parsed<Key>>,
    keys: Option<Parsed<Vec<LitStr>>>,
    names: &Names,
    mistakes: &mut Vec<syn::Error>,
) -> Option<Keys> {
    // Both are read if both are there, so that the mistakes in both are reported.
    let several = value(keys).map(|templates| {
        let read = templates.into_iter().map(|template| {
            let keys = names.template(&template, mistakes);
            (template, keys)
        });
        Keys::Several(read.collect())
    });
    let one = value(key).and_then(|key| match key {
        Key::Computed(key) => Some(Keys::Computed(key)),
        Key::Template(template) => match names.template(&template, mistakes) {
            Template::One(pieces) => Some(Keys::One(template, pieces)),
            Template::Each { .. } => {
                let text = if spec.table.iter().any(|row| row.name == "keys") {
                    format!("a list makes several keys: write `keys = {}`", template.token())
                } else {
                    format!("a list makes several keys, and #[{}] takes one lock", spec.attribute)
                };
                mistakes.push(syn::Error::new(template.span(), text));
                None
            }
        },
    });
    one.or(several)
}

/// A second lock on the same key would wait for the first one, which this call holds.
fn check_second_lock(attrs: &[Attribute], args: &Args, mistakes: &mut Vec<syn::Error>) {
    for attr in attrs {
        let Meta::List(list) = &attr.meta else { continue };
        let Some(spec) = list.path.segments.last().and_then(|name| crate::table::lock_named(&name.ident)) else {
            continue;
        };
        let other = read(spec, list.tokens.clone(), &mut Vec::new());
        let same = args.key_texts().is_some_and(|keys| other.key_texts().is_some_and(|others| keys == others));
        if let (true, Some(location)) = (same, other.key_location()) {
            mistakes.push(
                location
                    .mistake("this function already takes the lock with this key: remove one of the two attributes"),
            );
        }
    }
}
