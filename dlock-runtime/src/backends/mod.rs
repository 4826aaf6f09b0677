//! The stores. The only place where a backend is chosen by feature.

#[cfg(feature = "memory")]
pub mod memory;

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "mysql")]
pub mod get_lock;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::sync::Arc;

use crate::backend::Backend;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Opens the store behind a URL. The URL may hold a password: it is never echoed, not even where it is malformed.
#[cfg_attr(
    not(any(feature = "memory", feature = "sqlite", feature = "redis", feature = "mysql", feature = "etcd")),
    allow(unused_variables, reason = "without any backend nothing needs the clock")
)]
pub(crate) async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        #[cfg(feature = "memory")]
        "memory" => memory::open(url, clock),
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite::open(url, clock).await,
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "unix" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster"
        | "rediss-cluster" => redis::open(url, clock).await,
        #[cfg(feature = "redlock")]
        "redlock" => redlock::open(url, clock).await,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => get_lock::open(url, clock).await,
        #[cfg(feature = "etcd")]
        "etcd" => etcd::open(url, clock).await,
        other => Err(unknown(other)),
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
