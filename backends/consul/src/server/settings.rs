//! The settings from the URL and the environment: the agent, the token, and how locks are kept.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::{Address, OptionRow, Tls, TlsMode, UrlBody, UrlForm};

use crate::server::environment::{HttpAddress, Lookup, flag};
use crate::server::token::Token;

const DEFAULT_PORT: u16 = 8500;

/// The lock-delay that Consul's own tools use.
const DEFAULT_LOCK_DELAY: Duration = Duration::from_secs(15);
const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(60);

/// The nodes of dlock's own are this, and one hexadecimal digit.
pub(crate) const NODE_PREFIX: &str = "dlock-";

/// `consul://[:token@]host[:port][?option=value&…]`.
pub(crate) const FORM: UrlForm = UrlForm::new(
    "a Consul URL",
    "consul://[:token@]host[:port][?option=value&…]; without a host it is CONSUL_HTTP_ADDR",
    &["consul"],
    UrlBody::Hosts,
)
.port(|_| DEFAULT_PORT)
.options(&[
    OptionRow::one_of("keys", &["literal"]),
    OptionRow::new("lock_delay", "a duration from 0s to 60s"),
    OptionRow::new("checks", "names of health checks of the agent's node, with commas between"),
    OptionRow::new("dc", "the name of a datacenter"),
    OptionRow::new("namespace", "the name of a namespace of Consul Enterprise"),
    OptionRow::new("partition", "the name of an admin partition of Consul Enterprise"),
    OptionRow::new("token_file", "a file with the token"),
    OptionRow::one_of("tls", &["verify", "off"]),
    OptionRow::CA,
    OptionRow::CERT,
    OptionRow::KEY,
]);

/// The settings of a store.
pub(crate) struct Settings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) token: Token,
    /// `None`: no TLS.
    pub(crate) tls: Option<Tls>,
    /// The name in the server's certificate, if it is not the host.
    pub(crate) tls_name: Option<String>,
    /// Datacenter, namespace and partition, which are parameters of every request.
    pub(crate) scope: Vec<(&'static str, String)>,
    /// Whether locks have the names that foreign clients write.
    pub(crate) literal: bool,
    pub(crate) lock_delay: Duration,
    /// The health checks that end a session.
    pub(crate) checks: Vec<String>,
    /// The node of all sessions, a node of dlock's own (ADR 0033). `None`: the agent's own node, which has the checks.
    pub(crate) node: Option<String>,
}

impl Settings {
    pub(crate) fn of(address: &Address, lookup: Lookup) -> Result<Self> {
        if address.hosts().len() > 1 || !address.path().is_empty() || address.user().is_some() {
            return Err(address.wrong("it must name one agent; a token is written after a colon, without a user"));
        }
        if lookup("CONSUL_HTTP_AUTH").is_some() {
            let text = "dlock does not support basic authentication to Consul: unset CONSUL_HTTP_AUTH and use a token";
            return Err(Error::config("CONSUL_HTTP_AUTH", text));
        }
        let named = match address.hosts().first() {
            Some(host) => HttpAddress { host: host.name.clone(), port: host.port, tls: None },
            None => HttpAddress::read(lookup("CONSUL_HTTP_ADDR").as_deref().unwrap_or("127.0.0.1"))?,
        };
        let tls = tls(address, &named, lookup)?;
        let option = |name: &str, variable: &str| address.option(name).map(str::to_owned).or_else(|| lookup(variable));
        let scope = [
            ("dc", address.option("dc").map(str::to_owned)),
            ("ns", option("namespace", "CONSUL_NAMESPACE")),
            ("partition", option("partition", "CONSUL_PARTITION")),
        ];
        let lock_delay = address.read("lock_delay", |text| {
            humantime::parse_duration(text).ok().filter(|delay| *delay <= LONGEST_LOCK_DELAY)
        })?;
        let checks = address.option("checks").unwrap_or_default().split(',').filter(|name| !name.is_empty());
        let checks: Vec<_> = checks.map(str::to_owned).collect();
        Ok(Self {
            host: named.host,
            port: named.port.unwrap_or(DEFAULT_PORT),
            token: Token::of(address, lookup)?,
            tls,
            tls_name: lookup("CONSUL_TLS_SERVER_NAME"),
            scope: scope.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            literal: address.option("keys").is_some(),
            lock_delay: lock_delay.unwrap_or(DEFAULT_LOCK_DELAY),
            // Several nodes, so that no process reads the sessions of all others.
            node: checks.is_empty().then(|| format!("{NODE_PREFIX}{:x}", fastrand::u8(..16))),
            checks,
        })
    }
}

/// The TLS settings of the URL, or else of the environment.
fn tls(address: &Address, named: &HttpAddress, lookup: Lookup) -> Result<Option<Tls>> {
    // As Consul's own client: TLS that was asked for once is never taken back by `http://` in the address. Otherwise the token
    // would leave in clear text.
    let wanted = match (named.tls, flag(lookup, "CONSUL_HTTP_SSL")?) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (tls, flag) => tls.or(flag),
    };
    // A URL with TLS files never means clear text, even if a variable says so.
    let has_files = ["ca", "cert", "key"].iter().any(|name| address.option(name).is_some());
    if wanted == Some(true) && address.option("tls") == Some("off") {
        let text =
            "CONSUL_HTTP_SSL or CONSUL_HTTP_ADDR asks for TLS, and the URL says tls=off: take one of the two away";
        return Err(Error::config("tls", text));
    }
    let by_url = address.option("tls").is_some()
        || (wanted.is_none() && !address.hosts().is_empty())
        || (wanted != Some(true) && has_files);
    if by_url {
        let tls = Tls::by_option(address, false)?;
        return if tls.mode == TlsMode::Off { Ok(None) } else { with_variables(tls, address, lookup).map(Some) };
    }
    match wanted {
        Some(true) => with_variables(Tls::verified(address)?, address, lookup).map(Some),
        Some(false) => Ok(None),
        None if is_here(&named.host) => Ok(None),
        None => Err(Error::config(
            "CONSUL_HTTP_ADDR",
            "say how to reach an agent that is not on this host: begin CONSUL_HTTP_ADDR with https:// or http://, or set CONSUL_HTTP_SSL",
        )),
    }
}

/// Adds the files that the variables name, for those that the URL does not name.
fn with_variables(mut tls: Tls, address: &Address, lookup: Lookup) -> Result<Tls> {
    if flag(lookup, "CONSUL_HTTP_SSL_VERIFY")? == Some(false) {
        let text = "dlock always checks the agent's certificate: name the authority with ca= or CONSUL_CACERT";
        return Err(Error::config("CONSUL_HTTP_SSL_VERIFY", text));
    }
    let file = |name: &'static str| -> Result<Option<Vec<u8>>> {
        let Some(path) = lookup(name).filter(|_| address.reads_files()) else { return Ok(None) };
        let read = fs::read(path)
            .map_err(|error| Error::config(name, format!("the file named by {name} cannot be read: {}", error.kind())));
        read.map(Some)
    };
    if tls.ca.is_none() {
        if lookup("CONSUL_CAPATH").is_some() && lookup("CONSUL_CACERT").is_none() {
            return Err(Error::config("CONSUL_CAPATH", "name one file with CONSUL_CACERT instead of a folder"));
        }
        tls.ca = file("CONSUL_CACERT")?;
    }
    if tls.identity.is_none() {
        tls.identity = match (file("CONSUL_CLIENT_CERT")?, file("CONSUL_CLIENT_KEY")?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Error::config("CONSUL_CLIENT_CERT", "give both CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY")),
        };
    }
    Ok(tls)
}

fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
