//! `30s` to a `Duration`.

use std::time::Duration;

/// Months and years are left out: `M` is too near to `m`, and no lock is held for a year.
const UNITS: [&str; 8] = ["ns", "us", "ms", "s", "m", "h", "d", "w"];

/// How long each unit is.
const NANOS: [u128; 8] = {
    const SECOND: u128 = 1_000_000_000;
    [1, 1_000, 1_000_000, SECOND, 60 * SECOND, 3600 * SECOND, 86_400 * SECOND, 604_800 * SECOND]
};

/// The longest duration of an option: far above every use, and far below where arithmetic on clocks overflows.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The mistake in a value with a duration.
#[derive(Debug)]
pub enum Wrong {
    /// The text is a duration of zero.
    Zero(String),
    /// The text is longer than [`LONGEST`].
    TooLong(String),
    /// The number that has none, and the text with one.
    NoUnit(String, String),
    /// It is clear what was meant, and the text says how that is written.
    Meant(String),
    /// The reason why a text is no duration.
    Other(String),
}

impl From<Wrong> for String {
    fn from(wrong: Wrong) -> String {
        match wrong {
            Wrong::Zero(text) => format!("`{text}` is zero: write a longer time"),
            Wrong::TooLong(text) => format!("`{text}` is longer than 100 years"),
            Wrong::NoUnit(number, seconds) => format!("`{number}` has no unit: write `{seconds}` for seconds"),
            Wrong::Meant(text) => text,
            Wrong::Other(why) => format!("{why}; expected a number with a unit, such as `30s`, `500ms` or `1m30s`"),
        }
    }
}

/// Numbers with units and nothing else: `30s`, `500ms`, `1m30s`.
///
/// # Errors
/// For another text.
pub fn duration(text: &str) -> Result<Duration, Wrong> {
    match check_grammar(text) {
        Ok(()) => value(text),
        Err(Wrong::NoUnit(number, seconds)) => Err(advised(text, &seconds.clone(), || Wrong::NoUnit(number, seconds))),
        Err(why) => Err(meant(text).unwrap_or(why)),
    }
}

/// Reads a text that keeps to the grammar.
fn value(text: &str) -> Result<Duration, Wrong> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(Wrong::Zero(text.into())),
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(Wrong::TooLong(text.into())),
    }
}

/// The advice to write it otherwise, unless that would be refused too.
fn advised(text: &str, otherwise: &str, advice: impl FnOnce() -> Wrong) -> Wrong {
    match value(otherwise) {
        Ok(_) => advice(),
        Err(Wrong::Zero(_)) => Wrong::Zero(text.into()),
        Err(_) => Wrong::TooLong(text.into()),
    }
}

/// The advice for a text that is a duration except for a blank, a long unit name, or a fraction.
fn meant(text: &str) -> Option<Wrong> {
    let joined: String = text.split_whitespace().collect();
    if joined != text && check_grammar(&joined).is_ok() {
        let inside = text.split_whitespace().any(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        let location = if inside { " between number and unit" } else { "s in a duration" };
        return Some(advised(text, &joined, || Wrong::Meant(format!("no blank{location}: write `{joined}`"))));
    }
    if let Some(short) = with_short_units(&joined) {
        return Some(advised(text, &short, || {
            Wrong::Meant(format!("units are short: write `{short}` instead of `{text}`"))
        }));
    }
    let (whole, rest) = text.split_once('.')?;
    let (fraction, unit) = split_where(rest, |c| !c.is_ascii_digit());
    let unit_index = UNITS.iter().position(|known| *known == unit)?;
    let exponent = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let nanos = digits.checked_mul(NANOS[unit_index])?;
    if nanos == 0 {
        return Some(Wrong::Zero(text.into()));
    }
    let parts = 10_u128.pow(exponent);
    let unit = (0..=unit_index).rev().find(|&unit| nanos % (NANOS[unit] * parts) == 0)?;
    let exact = format!("{}{}", nanos / parts / NANOS[unit], UNITS[unit]);
    Some(advised(text, &exact, || Wrong::Meant(format!("no fractions: write `{exact}` instead of `{text}`"))))
}

/// `30seconds` as `30s`; nothing if there is something else in it.
fn with_short_units(text: &str) -> Option<String> {
    let (mut short, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let (number, tail) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, tail) = split_where(tail, |c| !c.is_alphabetic());
        if number.is_empty() {
            return None;
        }
        short = short + number + short_unit(unit)?;
        rest = tail;
    }
    (!short.is_empty()).then_some(short)
}

/// `M` is left out: it may be months.
fn short_unit(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().as_str() {
        "ns" | "nsec" | "nsecs" | "nanos" | "nanosecond" | "nanoseconds" => "ns",
        "us" | "\u{b5}s" | "\u{3bc}s" | "usec" | "usecs" | "micros" | "microsecond" | "microseconds" => "us",
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" if name == "m" => "m",
        "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        _ => return None,
    })
}

fn check_grammar(text: &str) -> Result<(), Wrong> {
    let mut rest = text;
    loop {
        let (number, tail) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, tail) = split_where(tail, |c| !c.is_ascii_alphabetic());
        if number.is_empty() {
            return Err(Wrong::Other(format!("`{text}` is not a duration")));
        }
        if unit.is_empty() && tail.is_empty() {
            return Err(Wrong::NoUnit(number.into(), format!("{text}s")));
        }
        if unit.is_empty() {
            return Err(Wrong::Other(format!("`{text}` is not a duration: `{number}` has no unit")));
        }
        if !UNITS.contains(&unit) {
            return Err(Wrong::Other(format!("`{unit}` is not a unit of time (there are {})", UNITS.join(", "))));
        }
        if tail.is_empty() {
            return Ok(());
        }
        rest = tail;
    }
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_numbers_with_units() {
        for (text, time) in [
            ("1ns", Duration::from_nanos(1)),
            ("250us", Duration::from_micros(250)),
            ("500ms", Duration::from_millis(500)),
            ("30s", Duration::from_secs(30)),
            ("007s", Duration::from_secs(7)),
            ("1m30s", Duration::from_secs(90)),
            ("2h", Duration::from_secs(7200)),
            ("1d", Duration::from_secs(86_400)),
            ("1w", Duration::from_secs(604_800)),
            ("36500d", LONGEST),
        ] {
            assert_eq!(duration(text).expect(text), time, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused() {
        for (text, part) in [
            ("", "is not a duration"),
            ("30", "`30` has no unit: write `30s` for seconds"),
            ("1m30", "`30` has no unit: write `1m30s` for seconds"),
            ("s", "is not a duration"),
            ("-5s", "is not a duration"),
            ("1.5s", "no fractions: write `1500ms` instead of `1.5s`"),
            ("0.5h", "write `30m` instead"),
            ("1.50w", "write `252h` instead"),
            ("1.5ns", "`1` has no unit"),
            ("1.99999999999999999999999999999999999999999999s", "`1` has no unit"),
            ("0.00000000000000000000000000000000000001s", "`0` has no unit"),
            (".s", "is not a duration"),
            ("0.0s", "`0.0s` is zero"),
            ("0.00h", "`0.00h` is zero"),
            ("0", "`0` is zero"),
            ("00", "`00` is zero"),
            ("0 s", "`0 s` is zero"),
            ("99999999999", "longer than 100 years"),
            ("36501 d", "longer than 100 years"),
            ("36500.5d", "longer than 100 years"),
            ("30 seconds", "write `30s` instead of `30 seconds`"),
            ("30seconds", "write `30s` instead"),
            ("30sec", "write `30s` instead"),
            ("1 Minute", "write `1m` instead"),
            ("1 hour 30 mins", "write `1h30m` instead"),
            ("2 days", "write `2d` instead"),
            ("1 week", "write `1w` instead"),
            ("5 milliseconds", "write `5ms` instead"),
            ("30S", "write `30s` instead"),
            ("30µs", "write `30us` instead"),
            ("30\u{3bc}s", "write `30us` instead"),
            ("0 seconds", "`0 seconds` is zero"),
            ("30 seconds ago", "`30 seconds ago` is not a duration"),
            ("seconds", "is not a duration"),
            ("30parsecs", "`parsecs` is not a unit of time"),
            ("1.5x", "`1` has no unit"),
            ("5x", "`x` is not a unit of time"),
            ("1M", "`M` is not a unit of time"),
            ("1y", "`y` is not a unit of time"),
            (" 30s", "no blanks in a duration: write `30s`"),
            ("30s ", "no blanks in a duration: write `30s`"),
            ("30 s", "no blank between number and unit: write `30s`"),
            ("1m 30s", "no blanks in a duration: write `1m30s`"),
            ("\u{ff13}\u{ff10}s", "is not a duration"),
            ("3\u{ff10}s", "`3` has no unit"),
            ("0s", "is zero"),
            ("0h0ms", "is zero"),
            ("36501d", "longer than 100 years"),
            ("99999999999d", "longer than 100 years"),
            ("99999999999999999999999s", "longer than 100 years"),
        ] {
            let why = String::from(duration(text).expect_err(text));
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
