//! Reads the server's answers.

use std::time::Duration;

use ::redis::{ServerErrorKind, Value};
use dlock_contract::{Released, Result};

use crate::reply::fault;

/// Whether the account may not run the command.
pub fn is_forbidden(answer: &Value) -> bool {
    // Hosted servers rename commands that their customers may not use, and then the command is unknown.
    matches!(answer, Value::ServerError(error)
        if matches!(error.kind(), Some(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError)))
}

/// The settings in an answer to `CONFIG GET`, each with its name.
pub fn settings(answer: &Value) -> Option<Vec<(&str, &str)>> {
    match answer {
        Value::Map(pairs) => Some(pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()),
        Value::Array(flat) => {
            Some(flat.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect())
        }
        _ => None,
    }
}

/// One field of the answer to `INFO`.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// How long the server has run, by its wall clock. If the clock was set back, the time may be negative. It then counts
/// as zero.
pub fn uptime(info: &str) -> Option<Duration> {
    let seconds: i64 = field(info, "uptime_in_seconds")?.trim().parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The answer as text.
pub fn text(answer: &Value) -> Option<&str> {
    match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

pub(crate) fn as_array(answer: &Value) -> Result<&[Value]> {
    match answer {
        Value::Array(parts) => Ok(parts),
        other => Err(fault::unexpected(other)),
    }
}

/// The outcome of a script that ends a hold.
pub fn released(answer: &Value) -> Result<Released> {
    match answer {
        Value::Int(1) => Ok(Released::Released),
        Value::Int(0) => Ok(Released::NotOwner),
        other if fault::is_wrong_type(other) => Ok(Released::NotOwner),
        other => Err(fault::unexpected(other)),
    }
}

/// The answers of a script that gives many. If the script failed, each answer is its failure.
pub(crate) fn each(answer: Option<Value>) -> Box<dyn Iterator<Item = Value> + Send> {
    match answer {
        Some(Value::Array(answers)) => Box::new(answers.into_iter()),
        Some(failure) => Box::new(std::iter::repeat(failure)),
        None => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_makes_a_server_young() {
        let uptime = |text| uptime(text).map(|uptime| uptime.as_secs());
        assert_eq!(uptime("redis_version:7.0.15\r\nuptime_in_seconds:90\r\n"), Some(90));
        assert_eq!(uptime("uptime_in_seconds:-3600\r\n"), Some(0));
        assert_eq!((uptime("uptime_in_seconds:x\r\n"), uptime("")), (None, None));
    }
}
