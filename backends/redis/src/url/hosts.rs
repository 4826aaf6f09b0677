//! URLs with several hosts, which general URL parsers refuse: `scheme://[user:password@]host[:port],…/path?…`.

use dlock_contract::engine::percent_decode;
use dlock_contract::{Error, Result};

use crate::url::settings::{Scheme, Settings};

/// The parts of such a URL.
pub(crate) struct Hosts {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Names or addresses without brackets, and ports.
    pub(crate) hosts: Vec<(String, u16)>,
    /// The parts of the path, between the slashes.
    pub(crate) path: Vec<String>,
    pub(crate) settings: Settings,
}

impl Hosts {
    /// Reads what follows `scheme://`. Says what is wrong without repeating any of it.
    pub(crate) fn parse(rest: &str, scheme: Scheme, tls: bool, port: u16) -> Result<Self> {
        let bad = |why: &'static str| Error::config("url", why);
        let escapes = || bad("the Redis URL has a broken %-escape");
        if rest.contains('#') {
            return Err(bad("a Redis URL has no part after #; in a password write %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.split_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        // A password with an unescaped @ ends up among the hosts.
        if hosts.contains('@') {
            return Err(bad(
                "the Redis URL cannot be read; in a user or password write @ : / % # ? as %40 %3A %2F %25 %23 %3F",
            ));
        }
        let (mut user, mut password) = (None, None);
        if let Some(credentials) = credentials {
            let (name, secret) = credentials.split_once(':').unwrap_or((credentials, ""));
            user = Some(percent_decode(name).ok_or_else(escapes)?).filter(|user| !user.is_empty());
            password = Some(percent_decode(secret).ok_or_else(escapes)?).filter(|password| !password.is_empty());
        }
        // The client would log nobody in, and go on as whoever needs no password.
        if user.is_some() && password.is_none() {
            return Err(bad("the Redis URL names a user without a password"));
        }
        let mut settings = Settings::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            settings.set(
                scheme,
                tls,
                &percent_decode(name).ok_or_else(escapes)?,
                &percent_decode(value).ok_or_else(escapes)?,
            )?;
        }
        let hosts = hosts.split(',').map(|host| read_host(host, port)).collect::<Option<Vec<_>>>();
        let hosts =
            hosts.ok_or_else(|| bad("the Redis URL names a host that is none: host[:port], with commas between"))?;
        let path = path.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect::<Option<Vec<_>>>();
        Ok(Self { user, password, hosts, path: path.ok_or_else(escapes)?, settings })
    }
}

fn read_host(text: &str, port: u16) -> Option<(String, u16)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => {
            let (address, rest) = text.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, rest)
        }
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(digits) => digits.parse().ok()?,
        None if rest.is_empty() => port,
        None => return None,
    };
    let named = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    (named && port > 0).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Hosts> {
        Hosts::parse(text, Scheme::Sentinel, false, 26379)
    }

    #[test]
    fn all_parts_are_read() {
        let url = "us%40er:p%2C%3A%2F@a.example:1,[::1]:2,10.0.0.3/my%20name/3?sentinel_password=x%26y&eviction=allow";
        let hosts = parse(url).unwrap();
        assert_eq!(hosts.hosts, [("a.example".into(), 1), ("::1".into(), 2), ("10.0.0.3".into(), 26379)]);
        assert_eq!((hosts.user.as_deref(), hosts.password.as_deref()), (Some("us@er"), Some("p,:/")));
        assert_eq!(hosts.path, ["my name", "3"]);
        assert_eq!(hosts.settings.sentinel_password.as_deref(), Some("x&y"));
        assert!(hosts.settings.eviction_allowed);
        assert_eq!(parse(":only@h").unwrap().password.as_deref(), Some("only"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        for url in [
            "",
            "a,,b",
            "a:0",
            "a:c4n4ry",
            "c4n4ry@h",
            "u:c4n4ry@x@h",
            "u:c4n4ry%zz@h",
            "u:c4n4ry#@h",
            "[c4n4ry]:1",
            "h?c4n4ry=1",
            "h?restart_guard=c4n4ry",
            "c4n4ry !",
        ] {
            let error = parse(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(!format!("{error:?}").contains("c4n4ry"), "{error:?}");
        }
    }
}
