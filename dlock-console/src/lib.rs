//! A live page of the locks of a service: who holds what, who waits, what was lost, and how the stores are.
//!
//! Mount [`router`] behind the service's own authentication. It shows the locks of this process and of its stores, and
//! changes nothing:
//!
//! ```
//! use axum::Router;
//!
//! # fn app() -> Router {
//! let app = Router::new().nest("/locks", dlock_console::router(dlock::Registry::global()));
//! # app
//! # }
//! ```
//!
//! The page is one file, which loads nothing from elsewhere. It gets its news by server-sent events, and each open page
//! looks at one page of one store: however many locks there are, at most 50 are read every two seconds.
//!
//! [`Console`] has the options: elections to show, and whether an operator may break holds.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A page of a service neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod activity;
mod break_hold;
mod live;
mod locks;
mod page;
mod pages;
mod sections;
mod seen;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::request::Parts;
use axum::routing::{get, post};
use dlock::Registry;

use crate::activity::Activity;
use crate::shared::{Shared, Who};

/// The page for the stores of a registry, with all options at their defaults: it shows and changes nothing.
pub fn router(registry: &Registry) -> Router {
    Console::new(registry).router()
}

/// The options of the page; [`router`](Self::router) makes it.
pub struct Console {
    registry: Registry,
    elections: Vec<(String, String)>,
    every: Duration,
    who: Option<Arc<Who>>,
}

impl Console {
    /// A page that shows the stores of this registry.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self { registry: registry.clone(), elections: Vec::new(), every: Duration::from_secs(2), who: None }
    }

    /// Shows the leader and the candidates of an election too, although this process is no candidate. `backend` is the name of
    /// its store. Elections in which this process is a candidate are shown without this.
    #[must_use]
    pub fn election(mut self, backend: impl Into<String>, name: impl Into<String>) -> Self {
        self.elections.push((backend.into(), name.into()));
        self
    }

    /// How often each open page looks at its store. Default: 2 s. What changes slowly, such as the health of a store, is looked
    /// at five times less often.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause;
        self
    }

    /// Lets operators break holds. Default: nobody can, and there is no such address.
    ///
    /// `who` tells from the request who the operator is, as the service's authentication knows it, such as by an
    /// extension or a header that only a proxy of yours can set. The holder reads the name in its error. `None` refuses the
    /// request.
    ///
    /// A break names the hold's id and a reason. It also carries a token that only an open page has, and that is good for one
    /// request. So no page from elsewhere can forge a break, and nobody can send one again.
    ///
    /// ```
    /// # fn app(registry: &dlock::Registry) -> axum::Router {
    /// #[derive(Clone)]
    /// struct User(String);
    /// let console = dlock_console::Console::new(registry)
    ///     .breaking(|request| request.extensions.get::<User>().map(|user| user.0.clone()));
    /// # console.router()
    /// # }
    /// ```
    #[must_use]
    pub fn breaking(mut self, who: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.who = Some(Arc::new(who));
        self
    }

    /// The page, for [`Router::nest`] or as a service of its own.
    ///
    /// It installs an observer in the registry, which counts each event under one mutex and keeps five minutes. So make it once.
    pub fn router(self) -> Router {
        let Self { registry, elections, every, who } = self;
        let activity = Arc::new(Activity::default());
        registry.observe(activity.observer());
        let mut router = Router::new().route("/", get(page::page)).route("/live", get(live::live));
        if who.is_some() {
            router = router.route("/break", post(break_hold::break_hold));
        }
        let every = every.max(Duration::from_millis(10));
        let shared = Arc::new(Shared { registry, elections, every, who, activity, pages: Arc::default() });
        // Only a break has a body: a key, a reason.
        router.layer(DefaultBodyLimit::max(16 * 1024)).with_state(shared)
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("elections", &self.elections)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
