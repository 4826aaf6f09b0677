//! Where a lock is taken: an annotated function, or a place that uses the builder.
//!
//! Owns the data that the macro writes for each function ([`Site`]) and each call ([`Call`]), and the [`Label`] that events
//! carry.
//!
//! May know the options; no store and no hold.

pub(crate) mod key_list;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::{KeyBuf, key_hash};
use dlock_contract::{Claim, HoldId, Key, Mode, Owner};

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
    message = "`key` needs a `dlock::Key`, but this is `{Self}`",
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
    message = "`backend` needs a name, but this is `{Self}`",
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

/// The label of a lock in metrics: the site, the key's template and the backend. Each has few values; a rendered key would have
/// one for every order. So only the log gets the key.
#[derive(Clone)]
pub struct Label {
    call_site: CallSite,
    store: Arc<StoreLabel>,
    mode: Mode,
    lock: LockOfLabel,
    is_sensitive: bool,
    is_election: bool,
}

/// A store in metrics and log lines.
#[derive(Clone)]
pub struct StoreLabel {
    /// The name under which it is installed.
    pub(crate) name: Arc<str>,
    /// Its kind, in one word. Empty if it could not be opened.
    pub(crate) kind: &'static str,
    /// See [`Backend::host`](dlock_contract::Backend::host).
    pub(crate) host: Option<Arc<str>>,
}

impl StoreLabel {
    /// The name under which the backend is installed.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.name
    }

    #[cold]
    fn has_equal_texts(&self, other: &Self) -> bool {
        self.name == other.name && self.kind == other.kind
    }

    /// The kind of the store in one word, such as `redis`. Empty if it could not be opened.
    #[must_use]
    pub const fn store(&self) -> &'static str {
        self.kind
    }

    /// The host and the port of the store, if it has one.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The same store under this name: for an observer that keeps a bound on the values of its labels.
    #[must_use]
    pub fn renamed(&self, name: &str) -> Self {
        // A name that stays is shared, and compared by its address.
        if *self.name == *name { self.clone() } else { Self { name: name.into(), ..self.clone() } }
    }
}

/// Equal if the name of the backend and the kind of the store are.
impl PartialEq for StoreLabel {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // By their addresses first: the labels of one installed store share their texts, and observers compare them often.
        Arc::ptr_eq(&self.name, &other.name) && std::ptr::eq(self.kind, other.kind) || self.has_equal_texts(other)
    }
}

impl Eq for StoreLabel {}

impl fmt::Debug for StoreLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.kind)
    }
}

/// The lock that a label is about, as far as it is known.
#[derive(Clone)]
pub(crate) enum LockOfLabel {
    /// The store was not opened yet, so the key has no namespace.
    Key(Arc<str>),
    /// The claim for it, and the token of a hold that this process has passed on to it.
    Claim(Arc<Claim>, Option<NonZeroU64>),
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

    #[inline]
    fn name(&self) -> &str {
        &self.text[..self.template]
    }

    fn template(&self) -> &str {
        &self.text[self.template..]
    }
}

impl CallSite {
    #[inline]
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

    pub(crate) const fn new(call_site: CallSite, store: Arc<StoreLabel>, options: &Options, lock: LockOfLabel) -> Self {
        let (is_sensitive, is_election) = (options.sensitive, options.election);
        Self { call_site, store, mode: options.mode, lock, is_sensitive, is_election }
    }

    /// Notes the claim that holds or wants the lock. The token is that of a hold that was passed on to it.
    pub(crate) fn note_claim(&mut self, claim: Arc<Claim>, passed_on: Option<NonZeroU64>) {
        self.lock = LockOfLabel::Claim(claim, passed_on);
    }

    /// The key, or its hash if the key is sensitive: for log lines and for the texts of errors.
    pub(crate) fn shown_key(&self) -> Cow<'_, str> {
        let key = match &self.lock {
            LockOfLabel::Key(key) => key,
            LockOfLabel::Claim(claim, _) => claim.key.as_str(),
        };
        if self.is_sensitive { key_hash(key).into() } else { key.into() }
    }

    /// Whether errors and log lines show a hash in the place of the key.
    pub(crate) const fn is_sensitive(&self) -> bool {
        self.is_sensitive
    }

    /// The id of the hold, or of the hold that a grant would make.
    pub(crate) fn hold_id(&self) -> Option<HoldId> {
        match &self.lock {
            LockOfLabel::Key(_) => None,
            LockOfLabel::Claim(claim, None) => Some(HoldId::of(&claim.owner)),
            LockOfLabel::Claim(claim, Some(token)) => Some(id_of_passed(&claim.owner, *token)),
        }
    }

    /// The host and the port of the store.
    pub(crate) fn host(&self) -> Option<&str> {
        self.store.host.as_deref()
    }

    /// The store of the lock.
    #[must_use]
    #[inline]
    pub fn store_label(&self) -> &StoreLabel {
        &self.store
    }

    /// Whether the lock is an election. Its [`name`](Self::name) is that of the election.
    #[must_use]
    pub const fn is_election(&self) -> bool {
        self.is_election
    }

    /// The annotated function's path, or the name given to the attribute or the builder.
    #[must_use]
    #[inline]
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
        &self.store.name
    }

    /// The kind of the store in one word, such as `redis`. Empty if the store could not be opened.
    #[must_use]
    pub fn store(&self) -> &'static str {
        self.store.kind
    }

    /// The mode in which the lock is wanted or held.
    #[must_use]
    #[inline]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}

/// The id of a hold for one of the callers to which this process has passed it on. Each has its own, so that nobody breaks the
/// hold of a later caller with it.
pub(crate) fn id_of_passed(owner: &Owner, token: NonZeroU64) -> HoldId {
    let mut owner = *owner.as_bytes();
    owner.iter_mut().zip(token.get().to_be_bytes()).for_each(|(byte, other)| *byte ^= other);
    HoldId::of(&Owner::from_bytes(owner))
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}] on {}", self.name(), self.template(), self.backend())
    }
}
