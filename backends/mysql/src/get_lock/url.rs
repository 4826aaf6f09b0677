//! Parts of a URL: decoded, or refused without repeating them.

use dlock_contract::engine::percent_decode;
use dlock_contract::{Error, Result};

pub(super) fn decode(text: &str) -> Result<String> {
    percent_decode(text).ok_or_else(|| wrong("a `%` is not followed by two hexadecimal digits; write it as %25"))
}

pub(super) fn wrong(text: &'static str) -> Error {
    Error::config("url", text)
}
