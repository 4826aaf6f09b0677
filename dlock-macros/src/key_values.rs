//! How keys are written: templates, lists of them, and expressions.

use syn::{Expr, LitStr};

use crate::literals::{is_literal, text, ungrouped};

pub(crate) enum Key {
    Template(LitStr),
    Computed(Box<Expr>),
}

pub(crate) fn key(value: &Expr) -> Result<Key, String> {
    match value {
        Expr::Macro(call) if call.mac.path.segments.last().is_some_and(|name| name.ident == "format") => Err(
            r#"text from `format!` runs into the text around it; write `key = "stock:<id>"`, or build one: `key = dlock::Key::text("stock:").value(&id)`"#
                .into(),
        ),
        _ if let Some(template) = text(value) => Ok(Key::Template(template)),
        _ if is_literal(value) => {
            Err(r#"expected a template in quotes, such as `key = "stock:<id>"`, or an expression that gives a `dlock::Key`"#.into())
        }
        _ => Ok(Key::Computed(Box::new(value.clone()))),
    }
}

pub(crate) fn template(value: &Expr) -> Result<Key, String> {
    let template = text(value).map(Key::Template);
    template.ok_or_else(|| r#"expected a name in quotes, such as `"nightly-report"` or `"report:<region>"`"#.into())
}

/// The templates that can be read. So their mistakes are reported together with those of the others.
pub(crate) fn keys(value: &Expr) -> (Option<Vec<LitStr>>, Result<(), String>) {
    const FORMS: &str = r#"expected templates in quotes, such as `["account:<from>", "account:<to>"]`, or one with a list in it: `"order:<ids..>"`"#;
    if let Some(template) = text(value) {
        return (Some(vec![template]), Ok(()));
    }
    let Expr::Array(array) = value else { return (None, Err(FORMS.into())) };
    let templates: Vec<LitStr> = array.elems.iter().filter_map(|element| text(ungrouped(element))).collect();
    let result = match array.elems.len() {
        0 => Err(format!("there is no key in the list; {FORMS}")),
        length if length == templates.len() => Ok(()),
        _ => Err(FORMS.into()),
    };
    (Some(templates), result)
}
