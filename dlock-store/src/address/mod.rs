//! The one reader of URLs, for all stores.
//!
//! No error and no `Debug` repeats a part of a URL: in a URL that was written wrong, any place may contain a part of a
//! password. The one exception is the name of an unknown parameter, if it can be no such part.

pub(crate) mod names;
pub(crate) mod opener;
pub(crate) mod secret;
pub(crate) mod tls;
pub(crate) mod url_form;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::address::secret::Secret;
use crate::address::url_form::{OptionRow, UrlBody, UrlForm};
use dlock_contract::engine::percent_decode;
use dlock_contract::{Error, Result};

/// A URL that was read: `scheme://[user[:password]@]host[:port][,host…][/path][?option=value&…]`, or what the
/// [`UrlForm`] of the store says instead.
///
/// All parts are percent-decoded. Blanks at the end of a URL that names hosts do not count.
///
/// ```
/// use dlock_store::{Address, OptionRow, UrlBody, UrlForm};
///
/// const FORM: UrlForm = UrlForm::new("a Cupboard URL", "cupboard://host[:port]/shelf", &["cupboard"], UrlBody::Hosts)
///     .options(&[OptionRow::one_of("doors", &["open", "closed"])]);
///
/// let address = Address::parse("cupboard://ann:s%40cret@kitchen:7/top?doors=open", &FORM)?;
/// assert_eq!((address.hosts()[0].name.as_str(), address.option("doors")), ("kitchen", Some("open")));
/// assert_eq!(address.password().map(|password| password.reveal()), Some("s@cret"));
/// // An error names the option and what it takes, and repeats nothing of the URL.
/// assert!(Address::parse("cupboard://kitchen?doors=ajar", &FORM).is_err());
/// # Ok::<(), dlock_contract::Error>(())
/// ```
#[derive(Clone)]
pub struct Address {
    form: &'static UrlForm,
    scheme: &'static str,
    user: Option<String>,
    password: Option<Secret>,
    hosts: Vec<Host>,
    path: Vec<String>,
    options: Vec<(&'static OptionRow, Secret)>,
    reads_files: bool,
}

/// A host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// A name, or an IPv4 or IPv6 address; without brackets.
    pub name: String,
    /// The port, if the URL gives one.
    pub port: Option<u16>,
}

impl Address {
    /// Reads a URL of this form.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid): for the field `url`, or for the option whose value
    /// cannot be. The text repeats no part of the URL.
    pub fn parse(url: &str, form: &'static UrlForm) -> Result<Self> {
        // A file may follow the scheme directly, as other programs write it.
        let file = || url.split_once(':').filter(|_| form.body == UrlBody::File);
        let (scheme, rest) = url.split_once("://").or_else(file).unwrap_or_default();
        let known = form.schemes.iter().find(|known| known.eq_ignore_ascii_case(scheme));
        let scheme = known.ok_or_else(|| form.wrong(&format!("it begins with {}", form.all_schemes())))?;
        let empty = Self {
            form,
            scheme,
            user: None,
            password: None,
            hosts: vec![],
            path: vec![],
            options: vec![],
            reads_files: true,
        };
        match form.body {
            UrlBody::Nothing if rest.is_empty() => Ok(empty),
            UrlBody::Nothing => {
                Err(Error::config("url", format!("{} takes no host, path or option: write {}", form.what, form.shape)))
            }
            UrlBody::File => empty.with_file(rest),
            UrlBody::Hosts | UrlBody::HostsAfterLastAt => empty.with_hosts(rest.trim_end()),
        }
    }

    fn with_file(mut self, rest: &str) -> Result<Self> {
        let (path, query) = split_query(rest);
        // As other stores' URLs have them. As a path, the password would be shown in errors.
        let has_password = path.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
        if has_password && !path.starts_with('/') {
            let what = self.form.what;
            return Err(Error::config(
                "url",
                format!("{what} names a file and takes no user or password; an `@` in the path is written %40"),
            ));
        }
        self.path = vec![self.decode(path)?];
        self.with_options(query)
    }

    fn with_hosts(mut self, rest: &str) -> Result<Self> {
        let account = match self.form.body {
            // A password that was not encoded may hold anything; what follows it holds no `@`.
            UrlBody::HostsAfterLastAt => rest.rsplit_once('@'),
            _ => rest.split_once('@').filter(|(account, _)| !account.contains(['/', '?', '#'])),
        };
        let rest = match account {
            Some((account, rest)) => {
                let (user, password) = account.split_once(':').unwrap_or((account, ""));
                self.user = Some(self.decode(user)?).filter(|user| !user.is_empty());
                self.password = Some(self.decode(password)?).filter(|text| !text.is_empty()).map(Secret::new);
                rest
            }
            None => rest,
        };
        // A password that is not encoded ends up in this part, so every error of it says how to encode one.
        let wrong = |why: &str| {
            let encode = "in a user or password write @ : / % # ? as %40 %3A %2F %25 %23 %3F";
            self.wrong(&format!("{why}; {encode}"))
        };
        if rest.contains('#') {
            return Err(wrong("nothing comes after a `#`"));
        }
        let (location, query) = split_query(rest);
        let (hosts, path) = location.split_once('/').unwrap_or((location, ""));
        if hosts.contains('@') {
            return Err(wrong("one user and one password stand before all hosts"));
        }
        // As the URLs of other tools have them, with a path after each host. Read as one path, the second host would be unused,
        // and a program with the path alone would hold the same lock.
        if !hosts.is_empty() && path.contains([',', ':']) {
            return Err(wrong("all hosts stand before the path, and in the path a , or : is written %2C or %3A"));
        }
        if !hosts.is_empty() {
            self.hosts = hosts.split(',').map(Host::read).collect::<Result<_, _>>().map_err(wrong)?;
        }
        let parts = path.split('/').filter(|part| !part.is_empty());
        self.path = parts.map(|part| self.decode(part)).collect::<Result<_>>()?;
        self.with_options(query)
    }

    fn with_options(mut self, query: Option<&str>) -> Result<Self> {
        let all = query.unwrap_or_default();
        for (number, pair) in all.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (self.decode(name)?, self.decode(value)?);
            let unknown = || self.form.unknown_option(self.scheme, &name, &shown_name(all, pair, number + 1));
            let row = self.form.row(self.scheme, &name).ok_or_else(unknown)?;
            if self.option(row.name).is_some() {
                let text = format!("{} gives the parameter `{}` twice", self.form.what, row.name);
                return Err(Error::config(row.name, text));
            }
            if !row.can_be(&value) {
                return Err(self.form.bad_value(row));
            }
            self.options.push((row, Secret::new(value)));
        }
        // A `?` by itself may be a part of a password too.
        if query.is_some() && self.form.options.is_empty() {
            return Err(self.form.unknown_option(self.scheme, "", ""));
        }
        Ok(self)
    }

    /// The same address, for a check of its text alone: the files that it names may come later than the program.
    #[must_use]
    pub fn by_text(self) -> Self {
        Self { reads_files: false, ..self }
    }

    /// Whether the files that the address names are read. Otherwise it counts as an address that names none.
    #[must_use]
    pub fn reads_files(&self) -> bool {
        self.reads_files
    }

    /// The scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The user, if one is named.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if one is given. One that is empty is none.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// The hosts. None where the URL has nothing before its path.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The hosts and ports in words, for the error of an opening that failed. `None` if the URL names no host, or if a part
    /// of a password may have been read as one.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let default = self.form.port.map(|port| port(self.scheme));
        let shown = |host: &Host| match (host.name.contains(':'), host.port.or(default)) {
            (false, Some(port)) => format!("{}:{port}", host.name),
            (true, Some(port)) => format!("[{}]:{port}", host.name),
            (_, None) => host.name.clone(),
        };
        let is_odd = self.path.iter().any(|part| part.contains('@'));
        let hosts: Vec<_> = self.hosts.iter().map(shown).collect();
        (!is_odd && !hosts.is_empty()).then(|| hosts.join(", "))
    }

    /// The parts of the path between the slashes. With [`UrlBody::File`] one part: the whole path.
    #[must_use]
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The value of an option, if the URL has it. The value may be a secret.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(row, _)| row.name == name).map(|(_, value)| value.reveal())
    }

    /// The value of an option, as `read` understands it.
    ///
    /// # Errors
    /// If `read` gives `None`: the error names the option and says what it takes, as its row does.
    pub fn read<T>(&self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some((row, value)) = self.options.iter().find(|(row, _)| row.name == name) else { return Ok(None) };
        read(value.reveal()).map(Some).ok_or_else(|| self.form.bad_value(row))
    }

    /// Whether the option can have this value in URLs of this form.
    pub(crate) fn can_be(&self, name: &str, value: &str) -> bool {
        self.form.row(self.scheme, name).is_some_and(|row| row.can_be(value))
    }

    /// The error of a URL that the store cannot use: its form, and why. The reason must not repeat a part of the URL.
    #[must_use]
    pub fn wrong(&self, why: &str) -> Error {
        self.form.wrong(why)
    }

    fn decode(&self, text: &str) -> Result<String> {
        let decoded = percent_decode(text).filter(|text| !text.contains('\0'));
        decoded.ok_or_else(|| {
            self.wrong("a `%` must be followed by two hexadecimal digits of UTF-8; write a `%` itself as %25")
        })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<_> = self.options.iter().map(|(row, _)| row.name).collect();
        f.debug_struct("Address")
            .field("scheme", &self.scheme)
            .field("hosts", &self.hosts.len())
            .field("options", &options)
            .finish_non_exhaustive()
    }
}

/// Everything after the first `?`, if there is one.
fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(before, query)| (before, Some(query)))
}

/// How an error names an unknown parameter. A password with a `?` or an `&` that is not encoded is cut there, and the rest of it
/// looks like the name of a parameter. So a name is shown only if there is neither an `@`, which ends the password of an account,
/// nor a parameter for a password.
fn shown_name(all: &str, pair: &str, number: usize) -> String {
    let is_name = |name: &str| {
        name.len() <= 40 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let may_be_secret = all.contains('@') || all.contains("%40") || all.contains("pass");
    match pair.split_once('=') {
        // A secret alone may end in `=`, as Base64 does.
        Some((name, value)) if is_name(name) && !value.trim_matches('=').is_empty() && !may_be_secret => {
            format!("the parameter `{name}`")
        }
        _ => format!("parameter {number}"),
    }
}

impl Host {
    /// The name and the port, or this one if the URL gives none.
    #[must_use]
    pub fn or_port(&self, port: u16) -> (String, u16) {
        (self.name.clone(), self.port.unwrap_or(port))
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        const NO_HOST: &str = "a host is a name, an IPv4 address, or an IPv6 address in brackets";
        let (name, rest) = match text.strip_prefix('[') {
            Some(text) => {
                let (address, rest) = text.split_once(']').ok_or(NO_HOST)?;
                (percent_decode(address).and_then(|address| v6(&address)), rest)
            }
            None => {
                let (name, rest) = text.find(':').map_or((text, ""), |at| text.split_at(at));
                (Some(name.to_owned()).filter(|name| is_name(name)), rest)
            }
        };
        let name = name.ok_or(NO_HOST)?;
        let port = match rest.strip_prefix(':') {
            Some(digits) => Some(digits.parse().ok().filter(|port| *port > 0)),
            None if rest.is_empty() => None,
            None => return Err(NO_HOST),
        };
        let port = port.map(|port| port.ok_or("a port must be a number from 1 to 65535")).transpose()?;
        Ok(Self { name, port })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// An IPv6 address in its usual form. A link-local one may name its interface: `fe80::1%eth0`.
fn v6(text: &str) -> Option<String> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let address = address.parse::<std::net::Ipv6Addr>().ok()?;
    match zone {
        None => Some(address.to_string()),
        Some(zone) => is_name(zone).then(|| format!("{address}%{zone}")),
    }
}
