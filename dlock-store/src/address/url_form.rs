//! The form of a store's URLs, as data: the part after the scheme, and a table of options.

use dlock_contract::Error;

/// The form of a store's URLs.
///
/// ```
/// use dlock_store::{OptionRow, UrlBody, UrlForm};
///
/// const FORM: UrlForm = UrlForm::new(
///     "a Cupboard URL",
///     "cupboard://[user:password@]host[:port]/shelf",
///     &["cupboard"],
///     UrlBody::Hosts,
/// )
/// .options(&[OptionRow::new("ttl_class", "a duration such as 5s"), OptionRow::one_of("doors", &["open", "closed"])]);
/// # let _ = FORM;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UrlForm {
    /// The beginning of a sentence about such a URL: `an etcd URL`.
    pub what: &'static str,
    /// How it is written: `etcd://[user:password@]host[:port][,host[:port]…]`.
    pub shape: &'static str,
    /// The schemes, in lower case: `redis` for `redis://…`.
    pub schemes: &'static [&'static str],
    /// The part between the scheme and the options.
    pub body: UrlBody,
    /// The port of a host without one, by the scheme.
    pub port: Option<fn(&str) -> u16>,
    /// The options. Any other one is an error that lists these.
    pub options: &'static [OptionRow],
    /// Options of other programs and stores: the beginning of a name in lower case, and an error that says what to do.
    pub elsewhere: &'static [(&'static str, &'static str)],
}

/// The part of a URL between the scheme and the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlBody {
    /// `[user:password@]host[:port],…[/path]`. In a user or password `@ / ? # %` have to be percent-encoded.
    Hosts,
    /// Like `Hosts`, but the account ends at the last `@`: in a password only `%` has to be encoded, and `@` in
    /// everything that follows.
    HostsAfterLastAt,
    /// The path of a file, as it is, up to the first `?`.
    File,
    /// Nothing at all.
    Nothing,
}

/// An option of a URL: `?name=value`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OptionRow {
    /// Its name.
    pub name: &'static str,
    /// Its values in words: `a duration such as 5s`. Empty where there is a list of them.
    pub takes: &'static str,
    /// All its values, if there is a list of them.
    pub words: &'static [&'static str],
    /// The schemes that have it. An empty list is all of them.
    pub schemes: &'static [&'static str],
}

/// Parameters that people bring from other programs' URLs, and what to do instead.
const BROUGHT: &[(&str, &str)] = &[
    ("application_name", "dlock names its sessions itself; leave it out"),
    ("charset", "dlock sets the character set of its sessions itself; leave it out"),
    ("connection_limit", "leave it out, or write `max_connections` where the store takes it"),
    ("db", "the number or the name of the database is the path: write it after the host and a `/`"),
    ("host", "the hosts stand before the path, with commas between them"),
    ("mode", "leave it out"),
    ("options", "dlock sets what its sessions need itself; leave it out"),
    ("pgbouncer", "dlock finds out by itself whether there is a pooler; leave it out"),
    ("ssl_cert_reqs", "with TLS the certificate is always checked; leave it out, and name your authority with `ca`"),
    ("token", "write a token as the password: `:token@` before the host"),
    ("useSSL", "write `tls=verify`, or with Redis a scheme such as rediss://"),
];

/// Whether the name is that of an option but for one slip of the finger, or two in a long one.
fn is_near(name: &str, option: &str) -> bool {
    let mut above: Vec<usize> = (0..=option.len()).collect();
    for (number, letter) in name.bytes().enumerate() {
        let mut row = vec![number + 1];
        for (at, other) in option.bytes().enumerate() {
            row.push((above[at] + usize::from(letter != other)).min(above[at + 1] + 1).min(row[at] + 1));
        }
        above = row;
    }
    above[option.len()] <= 1 + option.len() / 8
}

impl UrlForm {
    /// URLs without options.
    #[must_use]
    pub const fn new(what: &'static str, shape: &'static str, schemes: &'static [&'static str], body: UrlBody) -> Self {
        Self { what, shape, schemes, body, port: None, options: &[], elsewhere: &[] }
    }

    /// The port of a host without one, by the scheme. Errors of the opening name it.
    #[must_use]
    pub const fn port(mut self, port: fn(&str) -> u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Gives them options.
    #[must_use]
    pub const fn options(mut self, options: &'static [OptionRow]) -> Self {
        self.options = options;
        self
    }

    /// Explains options that others have: the beginning of a name in lower case, and the text of the error.
    #[must_use]
    pub const fn elsewhere(mut self, elsewhere: &'static [(&'static str, &'static str)]) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    /// The error of a URL that cannot be used: its form, and why.
    #[must_use]
    pub fn wrong(&self, why: &str) -> Error {
        Error::config("url", format!("{} is {}; {why}", self.what, self.shape))
    }

    /// `a:// or b://`.
    pub(crate) fn all_schemes(&self) -> String {
        self.schemes.iter().map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(" or ")
    }

    pub(crate) fn row(&self, scheme: &str, name: &str) -> Option<&'static OptionRow> {
        self.options.iter().find(|row| row.name == name && row.is_for(scheme))
    }

    /// The error of an option that these URLs do not take. `shown` is how the error names it.
    pub(crate) fn unknown_option(&self, scheme: &str, name: &str, shown: &str) -> Error {
        let name = name.to_ascii_lowercase();
        if let Some((_, text)) = self.elsewhere.iter().find(|(begin, _)| name.starts_with(begin)) {
            return Error::config("url", *text);
        }
        let brought = BROUGHT.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
        let rows = || self.options.iter().filter(|row| row.is_for(scheme));
        let known: Vec<_> = rows().map(OptionRow::shown).collect();
        let what = self.what;
        let text = match (brought, &known[..]) {
            (Some((known, advice)), _) => format!("{what} does not take `{known}`: {advice}"),
            (None, []) => format!("{what} takes no parameters; in a password write a `?` as %3F"),
            (None, known) => {
                let nearest = rows().map(|row| row.name).find(|row| is_near(&name, row));
                let meant = nearest.map_or_else(String::new, |name| format!(" (`{name}` is near it)"));
                let known = known.join(", ");
                format!("{shown} of {what} is unknown{meant}; with {scheme}:// it takes {known}")
            }
        };
        Error::config("url", text)
    }

    pub(crate) fn bad_value(&self, row: &OptionRow) -> Error {
        let takes = match row.words {
            [] => row.takes.to_owned(),
            words => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        };
        Error::config(row.name, format!("`{}` in {} is {takes}", row.name, self.what))
    }
}

impl OptionRow {
    /// An option that takes what these words say, and that the store reads.
    #[must_use]
    pub const fn new(name: &'static str, takes: &'static str) -> Self {
        Self { name, takes, words: &[], schemes: &[] }
    }

    /// An option that takes one of these words.
    #[must_use]
    pub const fn one_of(name: &'static str, words: &'static [&'static str]) -> Self {
        Self { name, takes: "", words, schemes: &[] }
    }

    /// Of the store's schemes only these have it.
    #[must_use]
    pub const fn only_for(mut self, schemes: &'static [&'static str]) -> Self {
        self.schemes = schemes;
        self
    }

    fn is_for(&self, scheme: &str) -> bool {
        self.schemes.is_empty() || self.schemes.contains(&scheme)
    }

    pub(crate) fn can_be(&self, value: &str) -> bool {
        if self.words.is_empty() { !value.is_empty() } else { self.words.contains(&value) }
    }

    /// `tls=verify|off`, or `ca (a file)`.
    fn shown(&self) -> String {
        match self.words {
            [] => format!("{} ({})", self.name, self.takes),
            words => format!("{}={}", self.name, words.join("|")),
        }
    }
}
