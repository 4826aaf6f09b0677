//! The cluster's members and the account, as the URL names them.

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{Address, OptionRow, Secret, Tls, TlsMode, UrlBody, UrlForm};
use etcd_client::ConnectOptions;
#[cfg(feature = "tls")]
use etcd_client::{Certificate, Identity, TlsOptions};

const DEFAULT_PORT: u16 = 2379;

/// `etcd://[user:password@]host[:port][,host[:port]…][?options]`.
pub(super) const FORM: UrlForm = UrlForm::new(
    "an etcd URL",
    "etcd://[user:password@]host[:port][,host[:port]…]",
    &["etcd"],
    UrlBody::HostsAfterLastAt,
)
.port(|_| DEFAULT_PORT)
.options(&[
    OptionRow::one_of("keys", &["literal"]),
    // There is no `require`: the client library always checks the server's certificate.
    OptionRow::one_of("tls", &["verify", "off"]),
    OptionRow::CA,
    OptionRow::CERT,
    OptionRow::KEY,
]);

/// The members and the account that a URL names.
pub(super) struct Members {
    /// Host names or addresses with their ports; at least one.
    pub(super) hosts: Vec<(String, u16)>,
    /// Name and password.
    pub(super) user: Option<(String, Secret)>,
    pub(super) tls: Tls,
}

impl Members {
    pub(super) fn of(address: &Address) -> Result<Self> {
        if address.hosts().is_empty() || !address.path().is_empty() {
            return Err(address.wrong("it must name at least one host, and no path may follow the hosts"));
        }
        let user = match (address.user(), address.password()) {
            (None, None) => None,
            (None, Some(_)) => return Err(address.wrong("it has a password but no user")),
            (Some(user), password) => {
                Some((user.to_owned(), password.cloned().unwrap_or_else(|| Secret::new(String::new()))))
            }
        };
        let tls = Tls::by_option(address, false)?;
        if tls.mode != TlsMode::Off && !cfg!(feature = "tls") {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "the feature `etcd-tls`".into() },
                "TLS to etcd needs the feature `etcd-tls` of dlock-rs: cargo add dlock-rs --features etcd-tls",
            ));
        }
        Ok(Self { hosts: address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect(), user, tls })
    }

    /// Whether the client has an account: a user, or a certificate.
    pub(super) fn has_account(&self) -> bool {
        self.user.is_some() || self.tls.identity.is_some()
    }

    /// The hosts as a URL has them.
    pub(super) fn shown(&self) -> Vec<String> {
        let bracketed = |name: &str| if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        self.hosts.iter().map(|(name, port)| format!("{}:{port}", bracketed(name))).collect()
    }
}

/// The server's certificate must have the name in the URL, because the address comes from an unproven look-up.
#[cfg(feature = "tls")]
pub(super) fn with_tls(options: ConnectOptions, name: &str, tls: &Tls) -> (ConnectOptions, &'static str) {
    if tls.mode == TlsMode::Off {
        return (options, "http");
    }
    let mut wanted = TlsOptions::new().domain_name(name);
    wanted = match &tls.ca {
        Some(ca) => wanted.ca_certificate(Certificate::from_pem(ca)),
        None => wanted.with_native_roots(),
    };
    if let Some((cert, key)) = &tls.identity {
        wanted = wanted.identity(Identity::from_pem(cert, key));
    }
    (options.with_tls(wanted), "https")
}

/// Without the feature, `Members::of` has refused a URL that asks for TLS.
#[cfg(not(feature = "tls"))]
pub(super) fn with_tls(options: ConnectOptions, _: &str, _: &Tls) -> (ConnectOptions, &'static str) {
    (options, "http")
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
        assert_eq!(hosts("etcd://a?tls=off"), ["a:2379"]);
        assert_eq!(hosts("ETCD://10.0.0.1:1,b.example:22/?tls=off"), ["10.0.0.1:1", "b.example:22"]);
        assert_eq!(hosts("etcd://[::1]:7,localhost"), ["[::1]:7", "localhost:2379"]);
        assert!(read("etcd://localhost").unwrap().user.is_none());
    }

    #[test]
    fn another_host_than_this_one_must_say_how_it_is_reached() {
        for url in ["etcd://a", "etcd://localhost,a"] {
            let error = read(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string();
            assert!(error.contains("tls=verify"), "{url}: {error}");
        }
        // Any certificate would do: the client library does not offer that.
        assert!(read("etcd://a?tls=require").is_err());
        let verified = read("etcd://a?tls=verify").map(|members| members.tls.mode);
        match cfg!(feature = "tls") {
            true => assert_eq!(verified.unwrap(), TlsMode::Verify),
            false => assert!(matches!(verified.unwrap_err().kind(), ErrorKind::Unsupported { .. })),
        }
        assert_eq!(read("etcd://localhost").unwrap().tls.mode, TlsMode::Off);
    }

    #[test]
    fn a_password_may_hold_anything() {
        let user = |url: &str| {
            let (name, password) = read(url).unwrap().user.unwrap();
            (name, password.reveal().to_owned())
        };
        let both = |name: &str, password: &str| (name.to_owned(), password.to_owned());
        assert_eq!(user("etcd://me:a%40b%3A%2F%25%23%3F%C3%A9@[::1]"), both("me", "a@b:/%#?é"));
        assert_eq!(user("etcd://me:a@b:/#?é@[::1]"), both("me", "a@b:/#?é"));
        assert_eq!(user("etcd://me@[::1]"), both("me", ""));
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
        assert_hidden(&["etcd://user:{}@a:1,[::1]:2?tls=off", "etcd://me:{}@[::1]/"], |url| {
            read(url).map(|members| members.shown())
        });
    }
}
