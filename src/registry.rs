//! The registry, which opens stores by URL.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use dlock_runtime::{Clock, Error, Result};

use crate::openers;

/// The backends of a process by name. There is one global registry, which the attribute uses; a test may have its own.
///
/// All that concerns locks is the [engine's registry](dlock_runtime::Registry), to which this one dereferences.
#[derive(Clone, Debug, Default)]
pub struct Registry(dlock_runtime::Registry);

impl Registry {
    /// A registry of its own, on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry on this clock; for tests.
    #[must_use]
    pub fn with_clock(clock: &Clock) -> Self {
        Self(dlock_runtime::Registry::with_clock(clock))
    }

    /// The registry that the attribute uses.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Registry> = LazyLock::new(|| Registry(dlock_runtime::Registry::global().clone()));
        &GLOBAL
    }

    /// Opens the store behind a URL and installs it under a name.
    ///
    /// The URL may hold a password; it is never shown. Outside of every runtime dlock's own thread opens it.
    ///
    /// `paired://` and `migrating://` name two stores that are installed already.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) for a URL that cannot be;
    /// [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered);
    /// [`ErrorKind::BackendNotRegistered`](crate::ErrorKind::BackendNotRegistered) for a URL that names a store which is not
    /// installed; else what the store's first answer was:
    /// unreachable, wrong password, a replica, settings under which locks would be lost.
    pub async fn connect(&self, name: &str, url: &str) -> Result<()> {
        let (url, registry) = (url.to_owned(), self.0.clone());
        let opening = async move { openers::open(&url, &registry).await };
        self.0.install_opened(name, opening).await
    }

    /// Installs the store behind a URL without asking it: it is opened at its first use, so that a service starts while
    /// its store is down.
    ///
    /// The first lock or [`ready`](dlock_runtime::Registry::ready) opens it, and calls meanwhile wait for that, each no
    /// longer than for a request. A store that cannot be opened is a store that fails: the call gets
    /// [`ErrorKind::Outage`](crate::ErrorKind::Outage) or what the store answered, `retry` and `on_outage` apply, and the
    /// next call opens anew; after five failures in a row one call a second does. Whether the store can do what the
    /// attributes ask is known when it is open: call [`verify`](dlock_runtime::Registry::verify) after `ready`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock::Error> {
    /// let registry = dlock::Registry::new();
    /// registry.connect_lazy("main", "memory://")?;
    /// let guard = registry.lock("stock:7").acquire().await?;  // opens the store
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) for a URL that cannot be;
    /// [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered).
    pub fn connect_lazy(&self, name: &str, url: &str) -> Result<()> {
        openers::check(url)?;
        if openers::members(url).iter().any(|member| member == name) {
            return Err(Error::config("name", format!("the store {name:?} cannot be made of itself")));
        }
        let url: Arc<str> = url.into();
        self.0.install_lazy(name, move |registry| {
            let url = url.clone();
            async move { openers::open(&url, &registry).await }
        })
    }
}

impl Deref for Registry {
    type Target = dlock_runtime::Registry;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_future_of_connect_can_be_spawned() {
        fn send<T: Send>(_: &T) {}
        let registry = Registry::new();
        send(&registry.connect("m", "memory://"));
        send(&registry.connect_from_env());
    }
}
