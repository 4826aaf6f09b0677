//! A provider of credentials, which is asked at each connect: passwords that are rotated, tokens that live for minutes.

use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dlock_contract::{Error, Result};
use dlock_store::{Secret, drop_elsewhere, foreign_thread, is_ours};
use futures::FutureExt;
use futures::future::BoxFuture;

/// The account of one connect. Nothing of it is ever shown.
#[derive(Clone, Debug)]
pub struct Login {
    pub(crate) user: Option<Secret>,
    pub(crate) password: Secret,
}

impl Login {
    /// A password or a token. The user is the one of the URL or of the options.
    #[must_use]
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: Secret::new(password.into()) }
    }

    /// A user and its password, for log-ins whose user changes too.
    #[must_use]
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(Secret::new(user.into())), password: Secret::new(password.into()) }
    }

    /// The options of a client with this account.
    pub fn apply<O>(&self, options: O, user: impl Fn(O, &str) -> O, password: impl Fn(O, &str) -> O) -> O {
        let options = match &self.user {
            Some(name) => user(options, name.reveal()),
            None => options,
        };
        password(options, self.password.reveal())
    }
}

/// The provider of the account for each connect.
#[derive(Clone)]
pub struct Credentials(Arc<Provider>);

struct Provider(Box<dyn Fn() -> BoxFuture<'static, Option<Login>> + Send + Sync>);

impl Drop for Provider {
    /// Dropping the user's function may run the user's code. The last connection of a store may end on our thread,
    /// which must not run it.
    fn drop(&mut self) {
        drop_elsewhere(std::mem::replace(&mut self.0, Box::new(|| Box::pin(ready(None)))));
    }
}

impl Credentials {
    /// Asks this function at each connect, on the caller's runtime or on one of dlock's. The time for a connect is also its
    /// time.
    ///
    /// Its error is shown nowhere, since it could hold a secret: let the function log it.
    pub fn new<F, E>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::result::Result<Login, E>> + Send + 'static,
    {
        Self(Arc::new(Provider(Box::new(move || {
            let provided = provide();
            Box::pin(async move { provided.await.ok() })
        }))))
    }

    /// The account of the next connect.
    ///
    /// # Errors
    /// An outage with the code `credentials` if the provider fails or panics. A retry may help.
    pub async fn get(&self) -> Result<Login> {
        let failed =
            || Error::outage("the provider of credentials failed; its own log says why").with_code("credentials");
        let provided = if is_ours() {
            // It may block, and so may the tasks that it starts.
            let provider = self.clone();
            foreign_thread()?.run(async move { provider.provided().await }).await?
        } else {
            self.provided().await
        };
        provided.ok_or_else(failed)
    }

    async fn provided(&self) -> Option<Login> {
        // Caught, for it also runs in tasks that must go on, such as the one that watches holds. It may panic before it gives a
        // future.
        AssertUnwindSafe(async { (self.0.0)().await }).catch_unwind().await.ok().flatten()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn provided(credentials: &Credentials) -> Error {
        credentials.get().now_or_never().unwrap().unwrap_err()
    }

    /// The store's own tasks ask too, and must outlive it.
    #[test]
    fn a_provider_that_panics_has_failed() {
        let at_once = Credentials::new(|| -> std::future::Ready<std::result::Result<Login, ()>> { panic!("canary") });
        let later = Credentials::new(|| async { if true { panic!("canary") } else { Err::<Login, ()>(()) } });
        for credentials in [at_once, later] {
            let error = provided(&credentials);
            assert_eq!(error.code(), Some("credentials"));
            assert!(error.is_retryable() && !format!("{error:?}").contains("canary"), "{error:?}");
        }
    }

    /// Tells where it is dropped.
    struct Tells(std::sync::mpsc::Sender<(&'static str, bool)>);

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(("dropped", is_ours())).unwrap();
        }
    }

    /// All locks of the process wait for our thread, and a provider may block, and start tasks that block.
    #[test]
    fn a_provider_runs_and_is_dropped_on_another_thread_than_ours() {
        let (tell, told) = std::sync::mpsc::channel();
        let drops = Tells(tell.clone());
        let credentials = Credentials::new(move || {
            let _ = &drops;
            let tell = tell.clone();
            tell.send(("called", is_ours())).unwrap();
            async move {
                let of_task = tokio::spawn(async { is_ours() }).await.unwrap();
                tell.send(("polled", of_task || is_ours())).unwrap();
                Ok::<_, ()>(Login::password("p"))
            }
        });
        let ours = dlock_store::background().unwrap();
        ours.spawn(async move { credentials.get().await.map(drop).unwrap() });
        let hang = std::time::Duration::from_secs(20);
        let told: Vec<_> = std::iter::from_fn(|| told.recv_timeout(hang).ok()).collect();
        assert_eq!(told, [("called", false), ("polled", false), ("dropped", false)]);
    }
}
