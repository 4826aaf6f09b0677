//! `"30s"` to a `Duration`, while the program is compiled.

use std::time::Duration;

/// Months and years are left out: `M` is too near to `m`, and no lock is held for a year.
const UNITS: [&str; 8] = ["ns", "us", "ms", "s", "m", "h", "d", "w"];

/// Far above every use, and far below where arithmetic on clocks overflows.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Numbers with units and nothing else: `30s`, `500ms`, `1m30s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Err(why) = check_grammar(text) {
        return Err(format!("{why}; expected a number with a unit, such as `30s`, `500ms` or `1m30s`"));
    }
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(format!("`{text}` is zero")),
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(format!("`{text}` is longer than 100 years")),
    }
}

fn check_grammar(text: &str) -> Result<(), String> {
    let mut rest = text;
    loop {
        let (number, tail) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, tail) = split_where(tail, |c| !c.is_ascii_alphabetic());
        if number.is_empty() {
            return Err(format!("`{text}` is not a duration"));
        }
        if unit.is_empty() {
            return Err(format!("`{text}` is not a duration: `{number}` has no unit"));
        }
        if !UNITS.contains(&unit) {
            return Err(format!("`{unit}` is not a unit of time (there are {})", UNITS.join(", ")));
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
    fn reads_numbers_with_units() {
        for (text, duration) in [
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
            assert_eq!(parse(text), Ok(duration), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for (text, part) in [
            ("", "is not a duration"),
            ("30", "`30` has no unit"),
            ("1m30", "`30` has no unit"),
            ("s", "is not a duration"),
            ("-5s", "is not a duration"),
            ("1.5s", "`1` has no unit"),
            ("1.5x", "`1` has no unit"),
            ("5x", "`x` is not a unit of time"),
            ("1M", "`M` is not a unit of time"),
            ("1y", "`y` is not a unit of time"),
            (" 30s", "is not a duration"),
            ("30s ", "is not a duration"),
            ("30 s", "has no unit"),
            ("1m 30s", "is not a duration"),
            ("\u{ff13}\u{ff10}s", "is not a duration"),
            ("3\u{ff10}s", "`3` has no unit"),
            ("30µs", "has no unit"),
            ("0s", "is zero"),
            ("0h0ms", "is zero"),
            ("36501d", "longer than 100 years"),
            ("99999999999d", "longer than 100 years"),
            ("99999999999999999999999s", "longer than 100 years"),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
