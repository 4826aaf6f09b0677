//! Where a lock is taken: an annotated function, or a place that uses the builder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::options::{LockOptions, Renew, Wait};

/// One annotated function: its options and its place in the source. The macro makes one static of it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site {
    pub(crate) spec: SiteSpec,
    pub(crate) options: LockOptions,
}

/// What the attribute said, as data.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SiteSpec {
    pub name: &'static str,
    pub template: &'static str,
    pub file: &'static str,
    pub line: u32,
    pub backend: Option<&'static str>,
    pub ttl: Option<Duration>,
    pub wait: Option<Wait>,
    pub renew: Option<Renew>,
}

impl Site {
    #[must_use]
    pub const fn new(spec: SiteSpec) -> Self {
        let options = LockOptions { ttl: spec.ttl, wait: spec.wait, renew: spec.renew, max_hold: None, attempts: None };
        Self { spec, options }
    }
}

/// What metrics and logs may say about a lock: the site, the key's template and the backend. Few values each; a
/// rendered key would be one value for every order.
#[derive(Clone)]
pub struct Label {
    place: Place,
    backend: Arc<str>,
}

#[derive(Clone)]
pub(crate) enum Place {
    Site(&'static Site),
    Builder(Arc<Named>),
}

#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) template: String,
}

impl Place {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Site(site) => site.spec.name,
            Self::Builder(named) => &named.name,
        }
    }
}

impl Label {
    pub(crate) const fn new(place: Place, backend: Arc<str>) -> Self {
        Self { place, backend }
    }

    /// The annotated function's path, or the name given to the builder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// The key's template, without values.
    #[must_use]
    pub fn template(&self) -> &str {
        match &self.place {
            Place::Site(site) => site.spec.template,
            Place::Builder(named) => &named.template,
        }
    }

    /// The name under which the backend is installed.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}] on {}", self.name(), self.template(), self.backend())
    }
}
