//! The table of openers: the only place where a store is chosen by feature.

use std::sync::Arc;

use dlock_contract::{Backend, Clock, Error, Opener, Result};

/// The stores of this build.
const OPENERS: &[Opener] = &[
    #[cfg(feature = "memory")]
    dlock_memory::OPENER,
    #[cfg(feature = "sqlite")]
    dlock_sqlite::OPENER,
    #[cfg(feature = "redis")]
    dlock_redis::OPENER,
    #[cfg(feature = "redlock")]
    dlock_redlock::OPENER,
    #[cfg(feature = "mysql")]
    dlock_mysql::OPENER,
    #[cfg(feature = "etcd")]
    dlock_etcd::OPENER,
];

/// Opens the store behind a URL. The URL may hold a password: it is never echoed, not even where it is malformed.
pub(crate) async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match OPENERS.iter().find(|opener| opener.schemes.contains(&&*scheme)) {
        Some(opener) => (opener.open)(url, clock).await,
        None => Err(unknown(&scheme)),
    }
}

/// Every scheme that some build knows, with the feature that it needs.
const SCHEMES: [(&str, &str); 14] = [
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("redis", "redis"),
    ("rediss", "redis-tls"),
    ("redis-sentinel", "redis"),
    ("rediss-sentinel", "redis-tls"),
    ("redis-cluster", "redis"),
    ("rediss-cluster", "redis-tls"),
    ("redis+unix", "redis"),
    ("unix", "redis"),
    ("redlock", "redlock"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
    ("etcd", "etcd"),
];

fn unknown(scheme: &str) -> Error {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, feature)) => Error::config(
            "url",
            format!(
                "URLs that begin with `{scheme}://` need the feature `{feature}` of dlock-rs: dlock-rs = {{ features = [\"{feature}\"] }}"
            ),
        ),
        // The scheme itself is not echoed: a URL that lost its scheme may begin with a password.
        None => Error::config(
            "url",
            "a backend's URL begins with memory://, sqlite://, redis://, rediss://, redis-sentinel://, redis-cluster://, redlock://, mysql://, mariadb:// or etcd://",
        ),
    }
}
