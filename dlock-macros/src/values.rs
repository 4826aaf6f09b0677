//! How the values of options are written: each reader takes one expression, and says what to write instead of it.

use std::time::Duration;

use dlock_values::{Pauses, Wrong};
pub(crate) use dlock_values::{Retry, Wait};
use syn::ext::IdentExt;
use syn::{Expr, ExprPath, Ident, LitStr, Path};

use crate::literals::{
    boolean, choice, digits, is_literal, no_expression, not_one_of, number, text, ungrouped, unquoted, word,
};

/// A value that is written as a literal, or as an expression for each call or for the compiler.
#[derive(Clone)]
pub(crate) enum Given<T> {
    Literal(T),
    Expr(Box<Expr>),
}

impl<T> Given<T> {
    pub(crate) fn literal(&self) -> Option<&T> {
        match self {
            Given::Literal(value) => Some(value),
            Given::Expr(_) => None,
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Given::Literal(_) => None,
            Given::Expr(expr) => Some(expr),
        }
    }
}

pub(crate) enum Renew {
    Off,
    Auto,
    Every(Given<Duration>),
}

pub(crate) enum Mode {
    Exclusive,
    Read,
    Write,
    Permits(Given<u32>),
}

impl Renew {
    pub(crate) fn expr(&self) -> Option<&Expr> {
        if let Renew::Every(every) = self { every.expr() } else { None }
    }
}

impl Mode {
    pub(crate) fn expr(&self) -> Option<&Expr> {
        if let Mode::Permits(permits) = self { permits.expr() } else { None }
    }
}

pub(crate) struct Cohort {
    pub(crate) passes: u32,
    pub(crate) span: Option<Duration>,
}

pub(crate) enum OnBusy {
    Error,
    Skip,
    Call(Box<ExprPath>),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OnLost {
    Cancel,
    Continue,
}

const OR_CONST: &str = ", or a `const` of type `Duration`";
const COUNT: &str = "expected a count, such as `3`";
const BACKOFF: &str = r#"expected two durations in quotes, such as `"100ms..5s"`"#;
const RETRY: &str = r#"expected `false`, a count such as `3`, or a count and two durations such as `"5, 100ms..2s"`"#;
const COHORT: &str =
    r#"expected `true`, `false`, a number of passes such as `64`, or passes and time such as `"64/3s"`"#;
const MODE: &str = "expected `exclusive`, `read`, `write` or `permits(n)`";
const ON_BUSY: &str = "expected `error`, `skip` or `call(path::to::a_function)`";

/// The last bound of the pauses of `#[optimistic]`, if the attribute does not give it.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Reads a text in quotes. `more` says what else the value may be, if it is no text.
fn quoted<T>(value: &Expr, read: impl Fn(&str) -> Result<T, Wrong>, more: &str) -> Result<T, String> {
    if let Some(text) = text(value) {
        return read(&text.value()).map_err(|wrong| match wrong {
            Wrong::NoUnit(number, seconds) => format!(r#"`{number}` has no unit: write `"{seconds}"` for seconds"#),
            wrong => wrong.into(),
        });
    }
    match digits(value).map(|digits| (read(digits), digits)) {
        // The advice to add a unit would not help.
        Some((Err(wrong), _)) if !matches!(wrong, Wrong::NoUnit(..)) => Err(wrong.into()),
        Some((_, digits)) => Err(format!(r#"a number needs a unit, and quotes: write `"{digits}s"` for seconds"#)),
        None => Err(format!(r#"expected a duration in quotes, such as `"30s"`{more}"#)),
    }
}

/// A duration, or a constant of one. The compiler works it out, because it is a part of the function.
pub(crate) fn fixed_time(value: &Expr) -> Result<Given<Duration>, String> {
    given(value, |value| quoted(value, dlock_values::duration, OR_CONST))
}

pub(crate) fn time_or_expr(value: &Expr) -> Result<Given<Duration>, String> {
    given(value, |value| quoted(value, dlock_values::duration, ", or an expression of type `Duration`"))
}

pub(crate) fn wait(value: &Expr) -> Result<Given<Wait>, String> {
    match word(value).as_deref() {
        Some(word @ ("none" | "forever")) => Ok(Given::Literal(dlock_values::wait(word)?)),
        _ => given(value, |value| quoted(value, dlock_values::wait, r#"; or write `"none"` or `"forever"`"#)),
    }
}

pub(crate) fn backend(value: &Expr) -> Result<Given<String>, String> {
    given(value, |value| match text(value) {
        Some(name) => label(&name),
        None => Err(r#"expected a name, such as `"redis"`, or an expression that gives one"#.into()),
    })
}

pub(crate) fn name(value: &Expr) -> Result<String, String> {
    text(value).map_or_else(
        || Err(closed(value, r#"expected a name in quotes, such as `"deduct_stock"`"#)),
        |name| label(&name),
    )
}

fn label(name: &LitStr) -> Result<String, String> {
    match name.value() {
        name if name.is_empty() => Err("the name is empty".into()),
        name if name.chars().any(char::is_control) => Err("the name has a control character".into()),
        name => Ok(name),
    }
}

pub(crate) fn renew(value: &Expr) -> Result<Renew, String> {
    match boolean(value) {
        Some(on) => Ok(if on { Renew::Auto } else { Renew::Off }),
        None if !is_literal(value) => Ok(Renew::Every(Given::Expr(Box::new(value.clone())))),
        None => {
            let more = format!("{OR_CONST}; or write `true` or `false`");
            Ok(match quoted(value, dlock_values::renew, &more)? {
                dlock_values::Renew::Auto => Renew::Auto,
                dlock_values::Renew::Off => Renew::Off,
                dlock_values::Renew::Every(every) => Renew::Every(Given::Literal(every)),
            })
        }
    }
}

pub(crate) fn flag(value: &Expr) -> Result<bool, String> {
    boolean(value).ok_or_else(|| closed(value, "expected `true` or `false`"))
}

pub(crate) fn count(value: &Expr) -> Result<Given<u32>, String> {
    given(value, |value| digits(value).map_or_else(|| Err(no_count(value)), dlock_values::count))
}

pub(crate) fn max_waiters(value: &Expr) -> Result<Given<u32>, String> {
    given(value, |value| digits(value).map_or_else(|| Err(no_count(value)), dlock_values::max_waiters))
}

fn no_count(value: &Expr) -> String {
    match text(value).map(|text| text.value()) {
        Some(text) if text.trim().parse::<u32>().is_ok() => format!("a count has no quotes: write `{}`", text.trim()),
        _ => format!("{COUNT}, or a `const` of type `u32`"),
    }
}

/// The error for a wrong value. If it is an expression, the error first says that none is allowed.
fn closed(value: &Expr, expected: &str) -> String {
    if is_literal(value) { expected.into() } else { no_expression(expected) }
}

pub(crate) fn backoff(value: &Expr) -> Result<Pauses, String> {
    text(value).map_or_else(|| Err(closed(value, BACKOFF)), |bounds| dlock_values::pauses(&bounds.value()))
}

/// A first bound, or both.
pub(crate) fn pause(value: &Expr) -> Result<Pauses, String> {
    match text(value).map(|bounds| bounds.value()) {
        Some(bounds) if bounds.contains("..") => dlock_values::pauses(&bounds),
        Some(first) => {
            let from = dlock_values::duration(&first)?;
            let last = if from > LONGEST_PAUSE { first.as_str() } else { "5s" };
            dlock_values::pauses(&format!("{first}..{last}"))
        }
        None => Err(closed(value, r#"expected a pause in quotes, such as `"50ms"` or `"50ms..2s"`"#)),
    }
}

pub(crate) fn retries(value: &Expr) -> Result<Given<u32>, String> {
    given(value, |value| match number(value)? {
        Some(0) => Err("without a further attempt this attribute does nothing: expected 1 or more".into()),
        Some(count) => Ok(count),
        None => Err(no_count(value)),
    })
}

pub(crate) fn retry(value: &Expr) -> Result<Retry, String> {
    match (boolean(value), digits(value), text(value)) {
        (Some(false), ..) => dlock_values::retry("false"),
        (_, Some(count), _) => dlock_values::retry(count),
        (.., Some(text)) => dlock_values::retry(&text.value()),
        _ => Err(closed(value, RETRY)),
    }
}

pub(crate) fn cohort(value: &Expr) -> Result<Option<Cohort>, String> {
    if let Some(on) = boolean(value) {
        return Ok(on.then_some(Cohort { passes: 64, span: None }));
    }
    let text = match number(value)? {
        Some(passes) => passes.to_string(),
        None => text(value).ok_or_else(|| closed(value, COHORT))?.value(),
    };
    let (passes, span) = text.split_once('/').map_or((text.as_str(), None), |(passes, span)| (passes, Some(span)));
    match passes.trim().parse() {
        Ok(0) => Err("with no pass allowed there is no cohort: write `false`".into()),
        Ok(passes) => {
            Ok(Some(Cohort { passes, span: span.map(|span| dlock_values::duration(span.trim())).transpose()? }))
        }
        Err(_) => Err(COHORT.into()),
    }
}

pub(crate) fn mode(value: &Expr) -> Result<Mode, String> {
    let value = unquoted(value).map_err(|()| MODE)?;
    match (word(&value).as_deref(), &value) {
        (Some("exclusive"), _) => Ok(Mode::Exclusive),
        (Some("read"), _) => Ok(Mode::Read),
        (Some("write"), _) => Ok(Mode::Write),
        (Some("permits"), _) => Err("how many may hold it at the same time? write `permits(3)`".into()),
        (Some(other), _) => Err(not_one_of(other, &["exclusive", "read", "write", "permits(n)"])),
        (None, Expr::Call(call)) if word(&call.func).as_deref() == Some("permits") && call.args.len() == 1 => {
            let permits = given(ungrouped(&call.args[0]), |value| match number(value)? {
                Some(0) => Err("with no permit nobody could acquire anything; the least is `permits(1)`".into()),
                Some(permits) => Ok(permits),
                None => Err("`permits` takes a count, such as `permits(3)`, or a `const` of type `u32`".into()),
            });
            permits.map(Mode::Permits)
        }
        (None, Expr::Call(call)) if word(&call.func).as_deref() == Some("permits") => {
            Err("`permits` takes one count, such as `permits(3)`".into())
        }
        _ => Err(closed(&value, MODE)),
    }
}

pub(crate) fn on_busy(value: &Expr) -> Result<OnBusy, String> {
    let value = unquoted(value).map_err(|()| ON_BUSY)?;
    match (word(&value).as_deref(), value) {
        (Some("error"), _) => Ok(OnBusy::Error),
        (Some("skip"), _) => Ok(OnBusy::Skip),
        (Some("wait"), _) => Err(r#"waiting is set by `wait = "5s"`; `on_busy` says what happens after that: `error`, `skip` or `call(path)`"#.into()),
        (Some("call"), _) => Err("which function? write `call(path::to::a_function)`; it is given the same arguments".into()),
        (Some(other), _) => {
            let why = not_one_of(other, &["error", "skip", "call(path)"]);
            let small = other.starts_with(char::is_lowercase);
            Err(if small && !why.contains("did you mean") { format!("{why}; to call a function write `call({other})`") } else { why })
        }
        (None, Expr::Call(call)) if word(&call.func).as_deref() == Some("call") => match (call.args.len(), call.args.first().map(ungrouped)) {
            (1, Some(Expr::Path(path))) => Ok(OnBusy::Call(Box::new(path.clone()))),
            _ => Err("expected the path of one function, such as `call(Self::queue_it)`; the arguments are passed on by themselves".into()),
        },
        (None, value) => Err(closed(&value, ON_BUSY)),
    }
}

pub(crate) fn on_lost(value: &Expr) -> Result<OnLost, String> {
    match choice(value, &["cancel", "continue"])? {
        0 => Ok(OnLost::Cancel),
        _ => Ok(OnLost::Continue),
    }
}

/// Whether the function is skipped in an outage.
pub(crate) fn on_outage(value: &Expr) -> Result<bool, String> {
    choice(value, &["error", "skip"]).map(|location| location == 1)
}

pub(crate) fn rerun(value: &Expr) -> Result<(), String> {
    choice(value, &["on_crash"]).map(|_| ())
}

pub(crate) fn guard(value: &Expr) -> Result<Ident, String> {
    name_in_body(value, "guard = held")
}

pub(crate) fn fence(value: &Expr) -> Result<Ident, String> {
    name_in_body(value, "fence = token")
}

fn name_in_body(value: &Expr, example: &str) -> Result<Ident, String> {
    let form = || format!("expected a name for it in the body, without quotes, such as `{example}`");
    let Expr::Path(path) = value else { return Err(form()) };
    let Some(name) = path.path.get_ident() else { return Err(form()) };
    if ["self", "super", "crate"].iter().any(|word| name == word) {
        return Err(form());
    }
    // A pattern of such a name would be compared with a constant or a type instead of binding anything.
    if name.unraw().to_string().starts_with(char::is_uppercase) {
        return Err(format!("a name in the body begins with a small letter, such as `{example}`"));
    }
    Ok(name.clone())
}

pub(crate) fn path(value: &Expr) -> Result<Path, String> {
    let path = match value {
        Expr::Path(path) if path.qself.is_none() => Some(path.path.clone()),
        _ => text(value).and_then(|text| text.parse().ok()),
    };
    path.ok_or_else(|| {
        "expected the path under which this crate knows dlock, such as `crate = other` or `crate = ::lib::dlock`".into()
    })
}

fn given<T>(value: &Expr, read: impl Fn(&Expr) -> Result<T, String>) -> Result<Given<T>, String> {
    if is_literal(value) { read(value).map(Given::Literal) } else { Ok(Given::Expr(Box::new(value.clone()))) }
}
