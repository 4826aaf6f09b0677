//! The environment variables of Consul's own tools, such as `CONSUL_HTTP_ADDR`.
//!
//! A variable counts only for a setting that the URL does not have. No error repeats a value.

use std::env;

use dlock_contract::{Error, Result};

/// Reads one variable.
pub(crate) type Lookup = fn(&str) -> Option<String>;

/// A variable of this process. An empty variable counts as not set.
pub(crate) fn of_process(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// An address in the form that Consul's tools accept.
pub(crate) struct HttpAddress {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Whether the scheme is `https`. `None` without a scheme.
    pub(crate) tls: Option<bool>,
}

impl HttpAddress {
    /// Reads `CONSUL_HTTP_ADDR`.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let wrong = || {
            Error::config(
                "CONSUL_HTTP_ADDR",
                "CONSUL_HTTP_ADDR must be host:port, http://host:port or https://host:port; a Unix socket is not supported",
            )
        };
        let (tls, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some(_) => return Err(wrong()),
        };
        let rest = rest.trim_end_matches('/');
        let authority: http::uri::Authority = rest.parse().map_err(|_| wrong())?;
        if rest.contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: authority.port_u16(), tls })
    }
}

/// Reads a variable that is true or false, as Go reads it.
pub(crate) fn flag(lookup: Lookup, name: &'static str) -> Result<Option<bool>> {
    match lookup(name).as_deref() {
        None => Ok(None),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
        Some(_) => Err(Error::config(name, format!("{name} must be true or false"))),
    }
}
