//! The registry, which opens stores by URL.

use std::ops::Deref;
use std::sync::LazyLock;

use dlock_runtime::{Clock, Result};

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
        let opening = async move { openers::open(&url, registry.clock(), |name| registry.backend(Some(name))).await };
        self.0.install_opened(name, opening).await
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
