//! Where a lock is taken: an annotated function, or a place that uses the builder.
//!
//! Owns the data that the macro writes for each function ([`Site`]) and each call ([`Call`]), and the [`Label`] that events
//! carry.
//!
//! May know the options; no store and no hold.

pub(crate) mod key_list;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{Key, Mode};

use crate::options::{Options, Otherwise, Wait};

/// One annotated function: what the attribute said, as data, and its place in the source. The macro makes one static
/// of it, and hands it in with [`Registered`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Site {
    pub name: &'static str,
    /// The key's template, or those of several keys; the text of the expression where the key is one.
    pub templates: &'static [&'static str],
    /// Whether the key is an expression. Then its template says nothing about the name.
    pub computed: bool,
    pub is_async: bool,
    pub file: &'static str,
    pub line: u32,
    /// `None` for the default, and where an expression names it at each call.
    pub backend: Option<&'static str>,
    /// The options that an expression gives at each call.
    pub per_call: &'static [&'static str],
    pub options: Options,
    pub on_busy: Otherwise,
    pub on_outage: Otherwise,
}

/// All sites of the program, collected when it is linked.
#[doc(hidden)]
#[derive(Debug)]
pub struct Registered(pub &'static Site);

inventory::collect!(Registered);

/// The part of a request that differs from call to call: keys, and options from expressions.
#[doc(hidden)]
#[derive(Debug)]
pub struct Call {
    pub(crate) keys: Keys,
    pub(crate) backend: Option<Cow<'static, str>>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Wait>,
}

#[derive(Debug)]
pub(crate) enum Keys {
    One(KeyBuf),
    Several(Vec<KeyBuf>),
}

impl Call {
    #[must_use]
    pub const fn new(key: KeyBuf) -> Self {
        Self { keys: Keys::One(key), backend: None, ttl: None, wait: None }
    }

    #[must_use]
    pub const fn several(keys: Vec<KeyBuf>) -> Self {
        Self { keys: Keys::Several(keys), backend: None, ttl: None, wait: None }
    }

    /// A key from an expression.
    #[must_use]
    pub fn computed(key: impl IsKey) -> Self {
        Self::new(key.key().into())
    }

    #[must_use]
    pub fn backend(mut self, name: &(impl IsName + ?Sized)) -> Self {
        self.backend = Some(name.name().to_owned().into());
        self
    }

    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    #[must_use]
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = Some(wait.into());
        self
    }
}

/// The type of a `key` expression. A text is refused: it is no template, and `<id>` in it would be one lock for all
/// values.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`key` needs a `dlock::Key`, and `{Self}` is none",
    label = "not a `dlock::Key`",
    note = "write a template in quotes, `key = \"stock:<id>\"`, or build a key: `key = dlock::Key::text(\"stock:\").value(&id)`"
)]
pub trait IsKey {
    fn key(self) -> Key;
}

impl IsKey for Key {
    fn key(self) -> Key {
        self
    }
}

/// The type of a `backend` expression.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`backend` needs a name, and `{Self}` is none",
    label = "not a text",
    note = "write it in quotes, `backend = \"main\"`, or give an expression of type `&str` or `String`"
)]
pub trait IsName {
    fn name(&self) -> &str;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<str> + ?Sized> IsName for T {
    fn name(&self) -> &str {
        self.as_ref()
    }
}

/// The label of a lock in metrics and logs: the site, the key's template and the backend. Each has few values; a
/// rendered key would have one for every order.
#[derive(Clone)]
pub struct Label {
    call_site: CallSite,
    backend: Arc<str>,
    /// The kind of the store, in one word.
    store: &'static str,
    mode: Mode,
    is_election: bool,
}

#[derive(Clone)]
pub(crate) enum CallSite {
    Site(&'static Site),
    Builder(Named),
}

/// The name given to the builder and the key's template, in one text: each hold keeps them.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    text: Arc<str>,
    /// Where the template begins.
    template: usize,
}

impl Named {
    pub(crate) fn new(name: &str, template: &str) -> Self {
        Self { text: [name, template].concat().into(), template: name.len() }
    }

    fn name(&self) -> &str {
        &self.text[..self.template]
    }

    fn template(&self) -> &str {
        &self.text[self.template..]
    }
}

impl CallSite {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Site(site) => site.name,
            Self::Builder(named) => named.name(),
        }
    }
}

impl Label {
    /// Whether it was taken at the same place in the source.
    #[cfg(debug_assertions)]
    pub(crate) fn same_call_site(&self, other: &Self) -> bool {
        match (&self.call_site, &other.call_site) {
            (CallSite::Site(one), CallSite::Site(other)) => std::ptr::eq(*one, *other),
            (CallSite::Builder(one), CallSite::Builder(other)) => one.name() == other.name(),
            _ => false,
        }
    }

    /// The place in the source, for people: an annotated function with its file and line, or the name given to the
    /// builder.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.call_site {
            CallSite::Site(site) => format!("{} ({}:{})", site.name, site.file, site.line),
            CallSite::Builder(named) => named.name().to_owned(),
        }
    }

    pub(crate) const fn new(call_site: CallSite, backend: Arc<str>, store: &'static str, mode: Mode) -> Self {
        Self { call_site, backend, store, mode, is_election: false }
    }

    pub(crate) fn of_election(self, is_election: bool) -> Self {
        Self { is_election, ..self }
    }

    /// Whether the lock is an election. Then [`template`](Self::template) is the election's name, and
    /// [`name`](Self::name) the candidate's.
    #[must_use]
    pub const fn is_election(&self) -> bool {
        self.is_election
    }

    /// The annotated function's path, or the name given to the attribute or the builder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.call_site.name()
    }

    /// The key's template, without values; the first one of several keys.
    #[must_use]
    pub fn template(&self) -> &str {
        match &self.call_site {
            CallSite::Site(site) => site.templates.first().copied().unwrap_or_default(),
            CallSite::Builder(named) => named.template(),
        }
    }

    /// The name under which the backend is installed.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// The kind of the store in one word, such as `redis`. Empty if the store could not be opened.
    #[must_use]
    pub const fn store(&self) -> &'static str {
        self.store
    }

    /// The mode in which the lock is wanted or held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}] on {}", self.name(), self.template(), self.backend())
    }
}
