//! Readers for the values of single options. An error says how the value is written in an attribute. The same text is read from
//! a file.

use std::time::Duration;

use crate::duration::{Wrong, duration};

/// The shortest time after which something is done again. A shorter one would keep a processor busy.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

const BACKOFF: &str = r#"expected two durations in quotes, such as `"100ms..5s"`"#;
const RETRY: &str = r#"expected `false`, a count such as `3`, or a count and two durations such as `"5, 100ms..2s"`"#;
const NEVER: &str = "never to ask again is written `retry = false`";

/// How long to wait for a lock that another owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No wait: ask once.
    None,
    /// At most this time, which is at most 100 years.
    UpTo(Duration),
    /// As long as it takes.
    Forever,
}

impl From<Duration> for Wait {
    /// Waits at most this time; zero means not to wait.
    fn from(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::UpTo(limit) }
    }
}

/// Whether and when a hold is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renew {
    /// At a third of the ttl.
    Auto,
    /// Never: the hold ends with its ttl.
    Off,
    /// At this interval: at least 1 ms, and at most two thirds of the ttl.
    Every(Duration),
}

/// The first and the last bound of a pause that grows.
pub type Pauses = (Duration, Duration);

/// How often a store that fails is asked again, and the pauses before, if they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of retries; zero for none.
    pub times: u32,
    /// `None`: the pauses that hold without this value.
    pub pauses: Option<Pauses>,
}

/// `none`, `forever`, or a duration.
///
/// # Errors
/// For another text.
pub fn wait(text: &str) -> Result<Wait, Wrong> {
    match text {
        "none" => Ok(Wait::None),
        "forever" => Ok(Wait::Forever),
        text => duration(text).map(Wait::UpTo).map_err(|wrong| match wrong {
            Wrong::Zero(text) => Wrong::Meant(format!(r#"`{text}` is zero: not to wait is `wait = "none"`"#)),
            Wrong::TooLong(text) => Wrong::Meant(format!(
                r#"`{text}` is longer than 100 years: to wait without a limit is `wait = "forever"`"#
            )),
            Wrong::Other(_) => Wrong::Meant(String::from(wrong) + r#"; or write `"none"` or `"forever"`"#),
            wrong => wrong,
        }),
    }
}

/// `true`, `false`, or a duration.
///
/// # Errors
/// For another text.
pub fn renew(text: &str) -> Result<Renew, Wrong> {
    match text {
        "true" => Ok(Renew::Auto),
        "false" => Ok(Renew::Off),
        text => match duration(text) {
            Ok(every) if every < SHORTEST_INTERVAL => {
                Err(Wrong::Meant(format!("`{text}` is too short: the shortest time between two renewals is `1ms`")))
            }
            Ok(every) => Ok(Renew::Every(every)),
            Err(wrong @ Wrong::Zero(_)) => Err(Wrong::Meant(String::from(wrong) + ", or `renew = false`")),
            Err(wrong @ Wrong::Other(_)) => Err(Wrong::Meant(String::from(wrong) + "; or write `true` or `false`")),
            Err(wrong) => Err(wrong),
        },
    }
}

/// A whole number, also with `_` in it.
///
/// # Errors
/// For another text, and above the largest `u32`.
pub fn number(text: &str) -> Result<u32, String> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let number = is_number.then(|| text.replace('_', "").parse().ok()).flatten();
    number.ok_or_else(|| format!("`{text}` is no count between 1 and {}", u32::MAX))
}

/// A number of attempts.
///
/// # Errors
/// For another text, and for zero.
pub fn count(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err("expected 1 or more: with none of them nobody could acquire anything".into()),
        count => Ok(count),
    }
}

/// How many callers may wait.
///
/// # Errors
/// For another text, and for zero.
pub fn max_waiters(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err(
            r#"expected 1 or more, since the caller that asks the store counts as a waiter as soon as it knows that others hold the lock; not to wait is `wait = "none"`"#
                .into(),
        ),
        count => Ok(count),
    }
}

/// Two durations of at least 1 ms, of which the second is not shorter: `100ms..5s`.
///
/// # Errors
/// For another text.
pub fn pauses(text: &str) -> Result<Pauses, String> {
    let Some((first, last)) = text.split_once("..") else { return Err(BACKOFF.into()) };
    let (from, to) = (duration(first.trim())?, duration(last.trim())?);
    if from > to {
        return Err(format!(
            "the pause grows, so the first bound must not be above the second: write `\"{last}..{first}\"`"
        ));
    }
    if from < SHORTEST_INTERVAL {
        return Err(format!("`{}` is too short: the shortest pause is `1ms`", first.trim()));
    }
    Ok((from, to))
}

/// `false`, a count, or a count and two durations.
///
/// # Errors
/// For another text.
pub fn retry(text: &str) -> Result<Retry, String> {
    if text == "false" {
        return Ok(Retry { times: 0, pauses: None });
    }
    let (count, bounds) = text.split_once(',').map_or((text, None), |(count, bounds)| (count, Some(bounds)));
    match number(count.trim()) {
        Ok(0) => Err(NEVER.into()),
        Ok(times) => Ok(Retry { times, pauses: bounds.map(|bounds| pauses(bounds.trim())).transpose()? }),
        Err(_) if text == "none" => Err(NEVER.into()),
        Err(_) => Err(RETRY.into()),
    }
}
