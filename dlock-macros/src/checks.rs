//! Finds options that do not fit together. The error points at the option with which its text begins, or else at the
//! option that was written later.
//!
//! Two options that do not go together are reported also if the value of one cannot be read, because an option that is
//! written is mostly wanted. The value of an expression is not known here. The runtime checks it before it asks the
//! store.

use std::time::Duration;

use syn::ext::IdentExt;

use crate::item::Shape;
use crate::names::Names;
use crate::table::Args;
use crate::values::{Given, Mode, OnLost, Renew, Wait};
use crate::written::{Location, Parsed};

/// Checks that need the attribute alone.
pub(crate) fn options(args: &Args, mistakes: &mut Vec<syn::Error>) {
    let mut mistakes = Mistakes(mistakes);
    keys(args, &mut mistakes);
    if let Some((ttl, location)) = literal_time(args.ttl.as_ref()) {
        durations(args, ttl, location, &mut mistakes);
    }
    order(args, &mut mistakes);
    periods(args, &mut mistakes);
    if let (Some((guard, name)), Some((fence, same))) =
        (args.in_body(args.guard.as_ref()), args.in_body(args.fence.as_ref()))
        && name.unraw() == same.unraw()
    {
        mistakes.between(
            guard,
            fence,
            format!("`{name}` cannot be the guard and the token at the same time: take two names"),
        );
    }
}

/// Checks that depend on whether the function is async.
pub(crate) fn shape(args: &Args, shape: &Shape, mistakes: &mut Vec<syn::Error>) {
    if !shape.is_sync() {
        return;
    }
    if let Some(Parsed { location, .. }) = &args.timeout {
        let text = "`timeout`: a function that is not async cannot be stopped: make it `async`, or check `dlock::current()` in its loop";
        mistakes.push(location.mistake(text));
    }
    if let Some(Parsed { value: Some(OnLost::Cancel), location }) = &args.on_lost {
        let text = "`on_lost`: a function that is not async cannot be cancelled: it goes on, and its caller is told of the loss. \
                    Leave this out, or make the function `async`";
        mistakes.push(location.mistake(text));
    }
}

/// Checks that depend on the names of the parameters.
pub(crate) fn names(args: &Args, names: &Names, mistakes: &mut Vec<syn::Error>) {
    let in_body = [(&args.guard, "held"), (&args.fence, "token")];
    let mut seen = Vec::new();
    for (parsed, example) in in_body {
        let Some((location, name)) = args.in_body(parsed.as_ref()) else { continue };
        // Two of one name were reported already.
        if names.is_bound(name) && !seen.contains(&name) {
            let word = location.word;
            let text = format!(
                "`{word}`: the function has a parameter `{name}` already: take another name, such as `{word} = {example}`"
            );
            mistakes.push(location.mistake(text));
        }
        seen.push(name);
    }
    if let Some(Parsed { value: Some(Given::Literal(Wait::None | Wait::Forever)), location }) = &args.wait
        && let Ok(word) = syn::parse2::<syn::Ident>(location.tokens.clone())
        && names.is_bound(&word)
    {
        let text = format!(
            "`wait`: is this the word or the parameter? Write `\"{word}\"` for the word, or give the parameter another name"
        );
        mistakes.push(location.mistake(text));
    }
}

struct Mistakes<'a>(&'a mut Vec<syn::Error>);

impl Mistakes<'_> {
    /// The text begins with the option that it is about.
    fn at(&mut self, location: &Location, text: impl std::fmt::Display) {
        self.0.push(location.mistake(text));
    }

    fn between(&mut self, one: &Location, other: &Location, text: impl std::fmt::Display) {
        self.0.push(one.later(other).mistake(text));
    }
}

fn keys(args: &Args, mistakes: &mut Mistakes) {
    let Some(keys) = &args.keys else { return };
    if let Some(key) = &args.key {
        mistakes.between(
            &key.location,
            &keys.location,
            "`key` and `keys` do not go together: list all of them in `keys`",
        );
    }
    let mut seen = Vec::new();
    for template in keys.value.iter().flatten() {
        if seen.contains(&template.value()) {
            mistakes.0.push(syn::Error::new(template.span(), "this key is in the list already: remove one of the two"));
        }
        seen.push(template.value());
    }
    if let Some(fence) = &args.fence {
        let text =
            "`fence`: with `keys` each lock has a token of its own: write `guard = held` and take them from there";
        mistakes.between(&keys.location, &fence.location, text);
    }
    if let Some(period) = &args.once_per {
        mistakes.between(
            &keys.location,
            &period.location,
            "`once_per` counts the starts under one key: write `key` instead of `keys`",
        );
    }
}

/// A duration that is known at compile time, and its location.
fn literal_time(parsed: Option<&Parsed<Given<Duration>>>) -> Option<(Duration, &Location)> {
    let parsed = parsed?;
    parsed.value.as_ref()?.literal().map(|time| (*time, &parsed.location))
}

/// Rounds a duration to a tenth of a second, or of a millisecond, so that its text is short.
fn rounded(time: Duration) -> Duration {
    let step = Duration::from_millis(100);
    let step = if time < step { Duration::from_micros(100) } else { step };
    let parts = time.as_nanos() / step.as_nanos();
    u32::try_from(parts).ok().filter(|parts| *parts > 0).map_or(time, |parts| step * parts)
}

fn durations(args: &Args, ttl: Duration, location: &Location, mistakes: &mut Mistakes) {
    let option = location.word;
    if let Some(Parsed { value: Some(Renew::Every(Given::Literal(every))), location: renew }) = &args.renew
        && every.saturating_mul(3) > ttl.saturating_mul(2)
    {
        let text = format!(
            "`renew` must be at most two thirds of the `{option}` of {}: a renewal that comes late or fails must leave time for another one. A third of it is usual: `renew = \"{}\"`",
            show(ttl),
            show(rounded(ttl / 3))
        );
        mistakes.at(renew, text);
    }
    if let Some((least, at_least)) = literal_time(args.min_hold.as_ref())
        && least > ttl
    {
        let word = at_least.word;
        let text = format!(
            "`{word}` must not be above `{option}`, which is {}: a process that dies keeps the lock no longer",
            show(ttl)
        );
        mistakes.at(at_least, text);
    }
    if let Some((most, at_most)) = literal_time(args.max_hold.as_ref())
        && most < ttl
    {
        let text =
            format!("`max_hold` must not be below `{option}`, which is {}: the first grant lasts that long", show(ttl));
        mistakes.at(at_most, text);
    }
    // A hold that nobody renews must outlast its body, with the margin that clocks need: the runtime's own figure.
    let covered = ttl.saturating_sub(ttl / 100 + Duration::from_millis(2));
    if let (Some(Parsed { value: Some(Renew::Off), .. }), Some((limit, at_limit))) =
        (&args.renew, literal_time(args.timeout.as_ref()))
        && limit > covered
    {
        let text = format!(
            "`timeout`: without renewal a `{option}` of {} covers a body of {} at most: shorten `timeout`, lengthen `{option}`, or leave out `renew = false`",
            show(ttl),
            show(covered)
        );
        mistakes.at(at_limit, text);
    }
}

fn order(args: &Args, mistakes: &mut Mistakes) {
    if let (Some(fair), Some(cohort)) = (&args.fair, &args.cohort)
        && !matches!((&fair.value, &cohort.value), (Some(false), _) | (_, Some(None)))
    {
        let text = "`fair` and `cohort` do not go together: callers of one process that pass the lock on overtake those of others";
        mistakes.between(&fair.location, &cohort.location, text);
    }
}

fn periods(args: &Args, mistakes: &mut Mistakes) {
    match (&args.once_per, &args.rerun) {
        (None, Some(rerun)) => {
            mistakes.0.push(
                rerun
                    .location
                    .mistake("`rerun` says what becomes of a run of `once_per`: add that, such as `once_per = \"1m\"`"),
            );
        }
        (period, _) => {
            if let Some((_, location)) =
                literal_time(period.as_ref()).filter(|(period, _)| *period < Duration::from_millis(1))
            {
                let text = "`once_per`: stores count in milliseconds: the shortest period is `\"1ms\"`";
                mistakes.0.push(location.mistake(text));
            }
        }
    }
    match (&args.once_per, &args.offset) {
        (None, Some(offset)) => {
            let text = "`offset` says where the periods of `once_per` begin: add that, such as `once_per = \"1d\"`";
            mistakes.0.push(offset.location.mistake(text));
        }
        (period, offset) => {
            if let (Some((period, _)), Some((offset, at_offset))) =
                (literal_time(period.as_ref()), literal_time(offset.as_ref()))
                && offset >= period
            {
                let text = format!(
                    "`offset` must be less than `once_per`, which is {}: after that the boundaries come again",
                    show(period)
                );
                mistakes.at(at_offset, text);
            }
        }
    }
    if let (Some(period), Some(mode)) = (&args.once_per, &args.mode)
        && !matches!(mode.value, Some(Mode::Exclusive))
    {
        mistakes.between(
            &period.location,
            &mode.location,
            "`once_per` needs one holder at a time: leave out `mode`, or make it `exclusive`",
        );
    }
}

/// As it is written in the attribute.
fn show(time: Duration) -> String {
    humantime::format_duration(time).to_string().replace(' ', "").replace("days", "d").replace("day", "d")
}
