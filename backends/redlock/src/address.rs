//! The nodes of a Redlock URL. No error repeats any part of the URL.

use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_redis::internal::Target;

/// A node is waited for by 5 ms of it; in less than that a busy machine does not even come round to answering.
pub(super) const MIN_TTL: Duration = Duration::from_secs(1);

/// For so long a node would have no vote after a restart.
const LONGEST_MAX_TTL: Duration = Duration::from_secs(86_400);

/// The longest ttl, and so how long a node that was restarted stays without a vote, unless the URL says otherwise.
const MAX_TTL: Duration = Duration::from_secs(60);

/// The most nodes. Each costs a request for every step.
const MOST_NODES: usize = 15;

/// The parts of a Redlock URL.
pub(super) struct Address {
    pub(super) targets: Vec<Target>,
    pub(super) max_ttl: Duration,
    /// Whether locks have the literal names that other tools use.
    pub(super) is_literal: bool,
}

impl Address {
    /// Reads `redlock://[user:password@]host[:port],host[:port],host[:port][/db][?max_ttl=…][&eviction=allow][&keys=literal]`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let bad = |why: &'static str| Error::config("url", why);
        let (_, rest) = text.split_once("://").ok_or_else(|| bad("a Redlock URL begins with redlock://"))?;
        // A password with an unescaped # ends up there.
        if rest.contains('#') {
            return Err(bad("a Redlock URL has no part after #; in a password write %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, hosts) = match authority.split_once('@') {
            Some((_, hosts)) if hosts.contains('@') => {
                return Err(bad("a Redlock URL has one user and password, for all nodes; write an @ in them as %40"));
            }
            Some((account, hosts)) => (format!("{account}@"), hosts),
            None => (String::new(), authority),
        };
        let (mut max_ttl, mut eviction, mut is_literal) = (MAX_TTL, "", false);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("eviction", "allow")) => eviction = "?eviction=allow",
                Some(("keys", "literal")) => is_literal = true,
                Some(("max_ttl", text)) => {
                    // Its error repeats the text, which may be a misplaced secret.
                    max_ttl = humantime::parse_duration(text)
                        .map_err(|_| bad("max_ttl in a Redlock URL is a duration such as 60s or 10m"))?;
                }
                _ => {
                    return Err(bad(
                        "the Redlock URL has a parameter that dlock does not know; known: max_ttl, eviction=allow, keys=literal",
                    ));
                }
            }
        }
        if !(MIN_TTL..=LONGEST_MAX_TTL).contains(&max_ttl) {
            return Err(bad("max_ttl in a Redlock URL is between 1s and 1day"));
        }
        let names: Vec<&str> = hosts.split(',').collect();
        if names.len() < 3 || names.len().is_multiple_of(2) || names.len() > MOST_NODES {
            return Err(bad(
                "Redlock needs an odd number of nodes, from 3 to 15, separated by commas: one more than an odd number survives no more failures",
            ));
        }
        let one = |name: &&str| {
            if name.is_empty() {
                return Err(bad("between two commas of a Redlock URL stands no host"));
            }
            Target::parse(&format!("redis://{account}{name}/{db}{eviction}"))
        };
        let targets = names.iter().map(one).collect::<Result<Vec<_>>>()?;
        let mut places: Vec<_> = targets.iter().map(|target| format!("{target:?}")).collect();
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(bad("the Redlock URL names a node twice: its vote would count double"));
        }
        Ok(Self { targets, max_ttl, is_literal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(url: &str) -> Vec<String> {
        Address::parse(url).unwrap().targets.iter().map(|target| format!("{target:?}")).collect()
    }

    #[test]
    fn every_node_has_the_account_and_the_database() {
        let url = "redlock://us%40er:p,%40%3A%2F@a:1,[::1]:2,c/3?max_ttl=90s&eviction=allow";
        assert_eq!(places(url), ["a:1/3", "::1:2/3", "c:6379/3"]);
        let address = Address::parse(url).unwrap();
        assert_eq!(address.max_ttl, Duration::from_secs(90));
        for target in &address.targets {
            assert_eq!(target.account(), Some((Some("us@er"), Some("p,@:/"), true)));
        }
        assert_eq!(places("redlock://a,b,c"), ["a:6379/0", "b:6379/0", "c:6379/0"]);
        let plain = Address::parse("redlock://a,b,c").unwrap();
        assert_eq!((plain.max_ttl, plain.is_literal), (MAX_TTL, false));
        assert!(Address::parse("redlock://a,b,c?keys=literal").unwrap().is_literal);
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_it() {
        for url in [
            "redlock://",
            "redlock://c4n4ry",
            "redlock://u:c4n4ry@a",
            "redlock://u:c4n4ry@a,b",
            "redlock://u:c4n4ry@a,b,c,d",
            "redlock://u:c4n4ry@a,b,a",
            "redlock://u:c4n4ry@a:6379,b,a",
            "redlock://u:c4n4ry@a,,c",
            "redlock://u:c4n4ry@a,u:c4n4ry@b,u:c4n4ry@c",
            "redlock://u:c4n4@ry@a,b,c",
            "redlock://u:c4n4ry#@a,b,c",
            "redlock://u:x?c4n4ry@a,b,c",
            "redlock://u:x/c4n4ry@a,b,c",
            "redlock://a,b,c/c4n4ry",
            "redlock://a,b,c:c4n4ry",
            "redlock://a,b,c/0?c4n4ry=1",
            "redlock://a,b,c/0?max_ttl=c4n4ry",
            "redlock://a,b,c/0?max_ttl=1ms",
            "redlock://a,b,c/0?max_ttl=2days",
            "redlock://a,b,c/0?eviction=c4n4ry",
            "redlock://a,b,c/0?keys=c4n4ry",
            "c4n4ry",
        ] {
            let error = Address::parse(url).err().unwrap();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("c4n4ry"), "{shown}");
            assert!(std::error::Error::source(&error).is_none());
            assert_eq!(error.kind().as_str(), "config_invalid", "{url}");
        }
    }
}
