//! The nodes of a Redlock URL. No error repeats any part of the URL.

use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_redis::internal::Target;
use dlock_store::{Address, OptionRow, UrlBody, UrlForm};

/// For this ttl a node is waited for 5 ms. In less time a busy machine may not be able to answer.
pub(super) const MIN_TTL: Duration = Duration::from_secs(1);

/// The largest `max_ttl`. After a restart a node has no vote for that time.
const LONGEST_MAX_TTL: Duration = Duration::from_secs(86_400);

/// The longest ttl, unless the URL says otherwise. A node that was restarted has no vote for this long.
const MAX_TTL: Duration = Duration::from_secs(60);

/// The most nodes. Each costs a request for every step.
const MOST_NODES: usize = 15;

/// `redlock://[user:password@]host[:port],host[:port],host[:port][/db]`.
pub(super) const FORM: UrlForm = UrlForm::new(
    "a Redlock URL",
    "redlock://[user:password@]host[:port],host[:port],host[:port][/db]",
    &["redlock"],
    UrlBody::Hosts,
)
.port(|_| 6379)
.options(&[
    OptionRow::new("max_ttl", "a duration from 1s to 1day such as 60s or 10m"),
    OptionRow::one_of("eviction", &["allow"]),
    OptionRow::one_of("keys", &["literal"]),
]);

/// The nodes that an address names.
pub(super) struct Nodes {
    pub(super) targets: Vec<Target>,
    pub(super) max_ttl: Duration,
    /// Whether locks have the literal names that foreign clients use.
    pub(super) is_literal: bool,
}

impl Nodes {
    pub(super) fn of(address: &Address) -> Result<Self> {
        let bad = |why: &'static str| Error::config("url", why);
        let max_ttl = |text: &str| {
            let time = humantime::parse_duration(text).ok()?;
            (MIN_TTL..=LONGEST_MAX_TTL).contains(&time).then_some(time)
        };
        let max_ttl = address.read("max_ttl", max_ttl)?.unwrap_or(MAX_TTL);
        let hosts = address.hosts();
        if hosts.len() < 3 || hosts.len().is_multiple_of(2) || hosts.len() > MOST_NODES {
            return Err(bad(
                "Redlock needs an odd number of nodes, from 3 to 15, separated by commas: one more than an odd number survives no more failures",
            ));
        }
        let targets = hosts.iter().map(|host| Target::node(address, host)).collect::<Result<Vec<_>>>()?;
        let mut places: Vec<_> = targets.iter().map(|target| format!("{target:?}")).collect();
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(bad("the Redlock URL names a node twice: its vote would count double"));
        }
        Ok(Self { targets, max_ttl, is_literal: address.option("keys").is_some() })
    }
}

/// More than half.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

#[cfg(test)]
mod tests {
    use dlock_testkit::slips::assert_hidden;

    use super::*;

    fn read(url: &str) -> Result<Nodes> {
        Nodes::of(&Address::parse(url, &FORM)?)
    }

    fn places(url: &str) -> Vec<String> {
        read(url).unwrap().targets.iter().map(|target| format!("{target:?}")).collect()
    }

    #[test]
    fn every_node_has_the_account_and_the_database() {
        let url = "redlock://us%40er:p,%40%3A%2F@a:1,[::1]:2,c/3?max_ttl=90s&eviction=allow";
        assert_eq!(places(url), ["a:1/3", "::1:2/3", "c:6379/3"]);
        let nodes = read(url).unwrap();
        assert_eq!(nodes.max_ttl, Duration::from_secs(90));
        for target in &nodes.targets {
            assert_eq!(target.account(), Some((Some("us@er"), Some("p,@:/"), true)));
        }
        assert_eq!(places("redlock://a,b,c"), ["a:6379/0", "b:6379/0", "c:6379/0"]);
        let plain = read("redlock://a,b,c").unwrap();
        assert_eq!((plain.max_ttl, plain.is_literal), (MAX_TTL, false));
        assert!(read("redlock://a,b,c?keys=literal").unwrap().is_literal);
    }

    #[test]
    fn an_error_about_a_url_does_not_repeat_it() {
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
            "redlock://a,b,c/0?c4n4ry",
            "redlock://a,b,c/0?max_ttl=c4n4ry",
            "redlock://a,b,c/0?max_ttl=1ms",
            "redlock://a,b,c/0?max_ttl=2days",
            "redlock://a,b,c/0?eviction=c4n4ry",
            "redlock://a,b,c/0?keys=c4n4ry",
            "c4n4ry",
        ] {
            let error = read(url).err().unwrap();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("c4n4ry"), "{shown}");
            assert!(std::error::Error::source(&error).is_none());
            assert_eq!(error.kind().as_str(), "config_invalid", "{url}");
        }
    }

    #[test]
    fn no_slip_in_a_url_shows_its_password() {
        let urls = ["redlock://user:{}@a:1,b:2,c:3/0?max_ttl=9s", "redlock://:{}@a,b,c?max_ttl={}"];
        assert_hidden(&urls, |url| read(url).map(|nodes| nodes.targets));
    }
}
