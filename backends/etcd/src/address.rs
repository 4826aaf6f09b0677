//! The hosts and the account of a URL. No error repeats any part of the URL.

use dlock_contract::{Error, Result};

const DEFAULT_PORT: u16 = 2379;

/// The parts of `etcd://[user:password@]host[:port][,host[:port]…]`.
pub(super) struct Address {
    /// `host:port`, at least one.
    pub(super) hosts: Vec<String>,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("etcd") {
            return Err(malformed("it begins with etcd://"));
        }
        // The last `@`, because a password that is not encoded may contain one too.
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (Some(credentials(user)?), hosts),
            None => (None, rest),
        };
        if let Some((_, parameters)) = hosts.split_once('?') {
            return Err(no_parameters(parameters));
        }
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        Ok(Self { hosts: hosts.split(',').map(host_and_port).collect::<Result<_>>()?, user })
    }
}

fn malformed(what: &'static str) -> Error {
    // The error repeats no part of the URL, because an unreadable part may be a password.
    Error::config("url", format!("an etcd URL is etcd://[user:password@]host:port[,host:port]; {what}"))
}

/// Names only a parameter that other stores have. Any other text may be a secret.
fn no_parameters(found: &str) -> Error {
    let text = if found.split('&').any(|parameter| parameter.starts_with("keys=")) {
        "an etcd URL takes no parameter `keys`: it is for Redis. Other tools lock the same in etcd if they use the prefix that docs/backends.md describes"
    } else {
        "an etcd URL takes no parameters; in a password write a `?` as %3F"
    };
    Error::config("url", text)
}

fn credentials(text: &str) -> Result<(String, String)> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    if name.is_empty() {
        return Err(malformed("there is a password but no user"));
    }
    Ok((decode(name)?, decode(password)?))
}

fn host_and_port(text: &str) -> Result<String> {
    let host_end = if text.starts_with('[') { text.find(']').map(|at| at + 1) } else { text.find(':') };
    let (host, port) = text.split_at(host_end.unwrap_or(text.len()));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = match bare {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        }
    };
    if !plain {
        return Err(malformed("a host is a name, an IPv4 address, or an IPv6 address in brackets; nothing follows it"));
    }
    let port = match port.strip_prefix(':') {
        Some(digits) => digits.parse().ok().filter(|port| *port > 0),
        None => port.is_empty().then_some(DEFAULT_PORT),
    };
    Ok(format!("{host}:{}", port.ok_or_else(|| malformed("a port is a number from 1 to 65535"))?))
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(malformed("a `%` must be followed by two hexadecimal digits; write a `%` itself as %25")),
        }
    }
    String::from_utf8(bytes).map_err(|_| malformed("user and password are UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let hosts = |url: &str| Address::parse(url).unwrap().hosts;
        assert_eq!(hosts("etcd://a"), ["a:2379"]);
        assert_eq!(hosts("ETCD://10.0.0.1:1,b.example:22/"), ["10.0.0.1:1", "b.example:22"]);
        assert_eq!(hosts("etcd://[::1]:7,[::2]"), ["[::1]:7", "[::2]:2379"]);
        assert!(Address::parse("etcd://a").unwrap().user.is_none());
    }

    #[test]
    fn a_password_may_hold_anything() {
        let user = |url: &str| Address::parse(url).unwrap().user.unwrap();
        let both = |name: &str, password: &str| (name.to_owned(), password.to_owned());
        assert_eq!(user("etcd://me:a%40b%3A%2F%25%23%3F%C3%A9@h"), both("me", "a@b:/%#?é"));
        assert_eq!(user("etcd://me:a@b:/#?é@h"), both("me", "a@b:/#?é"));
        assert_eq!(user("etcd://me@h"), both("me", ""));
    }

    #[test]
    fn a_parameter_is_refused_as_a_parameter() {
        for (url, says) in [
            ("etcd://h:2379?keys=literal", "no parameter `keys`"),
            ("etcd://h/?keys=literal", "no parameter `keys`"),
            ("etcd://me:pw@h:1,i:2?eviction=allow", "takes no parameters"),
            ("etcd://h?", "takes no parameters"),
        ] {
            let error = Address::parse(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string();
            assert!(error.contains(says) && !error.contains("port"), "{url}: {error}");
        }
    }

    #[test]
    fn a_malformed_url_is_refused_and_never_echoed() {
        for url in [
            "etcd://canary@",
            "etcd://me:canary@",
            "etcd://:canary@h",
            "etcd://me:canary%@h",
            "etcd://me:canary%ff@h",
            "etcd://me:canary@h:0",
            "etcd://me:canary@h:65536",
            "etcd://me:canary@h:1:2",
            "etcd://me:canary@h,,i",
            "etcd://me:canary@[::x]:1",
            "etcd://me:canary@h/path",
            "etcd://h?password=canary",
            "etcd://h#canary",
            "canary://h",
            "canary",
        ] {
            let error = Address::parse(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }
}
