//! The members of the cluster, and the account.

use dlock_contract::{Address, OptionRow, Result, Secret, UrlBody, UrlForm};

const DEFAULT_PORT: u16 = 2379;

/// `etcd://[user:password@]host[:port][,host[:port]…]`.
pub(super) const FORM: UrlForm = UrlForm::new(
    "an etcd URL",
    "etcd://[user:password@]host[:port][,host[:port]…]",
    &["etcd"],
    UrlBody::HostsAfterLastAt,
)
.options(&[OptionRow::one_of("keys", &["literal"])]);

/// The members that an address names, and the account.
pub(super) struct Members {
    /// Names or addresses, and ports; at least one.
    pub(super) hosts: Vec<(String, u16)>,
    /// Name and password.
    pub(super) user: Option<(String, Secret)>,
}

impl Members {
    pub(super) fn of(address: &Address) -> Result<Self> {
        if address.hosts().is_empty() || !address.path().is_empty() {
            return Err(address.wrong("it names one host at least, and nothing follows the hosts"));
        }
        let user = match (address.user(), address.password()) {
            (None, None) => None,
            (None, Some(_)) => return Err(address.wrong("there is a password but no user")),
            (Some(user), password) => {
                Some((user.to_owned(), password.cloned().unwrap_or_else(|| Secret::new(String::new()))))
            }
        };
        Ok(Self { hosts: address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect(), user })
    }

    /// The hosts as a URL has them.
    pub(super) fn shown(&self) -> Vec<String> {
        let bracketed = |name: &str| if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        self.hosts.iter().map(|(name, port)| format!("{}:{port}", bracketed(name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use dlock_testkit::slips::assert_hidden;

    use super::*;

    fn read(url: &str) -> Result<Members> {
        Members::of(&Address::parse(url, &FORM)?)
    }

    #[test]
    fn urls_are_read() {
        let hosts = |url: &str| read(url).unwrap().shown();
        assert_eq!(hosts("etcd://a"), ["a:2379"]);
        assert_eq!(hosts("ETCD://10.0.0.1:1,b.example:22/"), ["10.0.0.1:1", "b.example:22"]);
        assert_eq!(hosts("etcd://[::1]:7,[::2]"), ["[::1]:7", "[::2]:2379"]);
        assert!(read("etcd://a").unwrap().user.is_none());
    }

    #[test]
    fn a_password_may_hold_anything() {
        let user = |url: &str| {
            let (name, password) = read(url).unwrap().user.unwrap();
            (name, password.reveal().to_owned())
        };
        let both = |name: &str, password: &str| (name.to_owned(), password.to_owned());
        assert_eq!(user("etcd://me:a%40b%3A%2F%25%23%3F%C3%A9@h"), both("me", "a@b:/%#?é"));
        assert_eq!(user("etcd://me:a@b:/#?é@h"), both("me", "a@b:/#?é"));
        assert_eq!(user("etcd://me@h"), both("me", ""));
    }

    #[test]
    fn an_unknown_parameter_is_refused_as_a_parameter() {
        for (url, says) in [("etcd://h:2379?keys=own", "`keys`"), ("etcd://me:pw@h:1,i:2?eviction=allow", "parameter")]
        {
            let error = read(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string();
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
            let error = read(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }

    #[test]
    fn no_slip_in_a_url_shows_its_password() {
        assert_hidden(&["etcd://user:{}@a:1,[::1]:2", "etcd://me:{}@h/"], |url| {
            read(url).map(|members| members.shown())
        });
    }
}
