//! The form of a Redis URL: its schemes and the table of its options.

use dlock_store::{Address, OptionRow, UrlBody, UrlForm};

const TLS: &[&str] = &["rediss", "rediss-sentinel", "rediss-cluster"];
const SENTINEL: &[&str] = &["redis-sentinel", "rediss-sentinel"];
const SOCKET: &[&str] = &["unix", "redis+unix"];
/// Redisson's layout is not for clusters.
const ONE_PRIMARY: &[&str] = &["redis", "rediss", "unix", "redis+unix", "redis-sentinel", "rediss-sentinel"];

const GUARD: &str = "a time of at most a day such as 30s, or auto, or off";

/// The URLs of all topologies.
pub(crate) const FORM: UrlForm = UrlForm::new(
    "a Redis URL",
    "redis://[user:password@]host[:port][/db], unix:///path, redis-sentinel://[user:password@]host[:port],…/name[/db] \
     or redis-cluster://[user:password@]host[:port],…",
    &["redis", "rediss", "redis+unix", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"],
    UrlBody::Hosts,
)
.port(|scheme| if SENTINEL.contains(&scheme) { 26379 } else { 6379 })
.options(&[
    OptionRow::one_of("eviction", &["allow"]),
    OptionRow::one_of("keys", &["literal"]),
    OptionRow::one_of("layout", &["redisson"]).only_for(ONE_PRIMARY),
    OptionRow::new("wait_replicas", "a number of replicas, from 1 to 100"),
    OptionRow::new("restart_guard", GUARD),
    OptionRow::new("failover_guard", GUARD),
    OptionRow::CA.only_for(TLS),
    OptionRow::CERT.only_for(TLS),
    OptionRow::KEY.only_for(TLS),
    OptionRow::new("sentinel_user", "the user at the sentinels").only_for(SENTINEL),
    OptionRow::new("sentinel_password", "the password at the sentinels").only_for(SENTINEL),
    OptionRow::new("db", "the number of a database").only_for(SOCKET),
    OptionRow::new("user", "the user").only_for(SOCKET),
    OptionRow::new("pass", "the password").only_for(SOCKET),
]);

/// Whether the scheme asks for TLS.
pub(crate) fn is_tls(address: &Address) -> bool {
    TLS.contains(&address.scheme())
}
