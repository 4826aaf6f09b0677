//! Settings of every connection: time limits, keep-alive, login.

use std::time::Duration;

use ::redis::io::tcp::TcpSettings;
use ::redis::io::tcp::socket2::TcpKeepalive;
use ::redis::{AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, RedisConnectionInfo};

/// Opening takes no longer: a firewall that swallows packets would hold it for minutes.
pub const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// The client's own time limits need tokio's timer, which a caller's runtime may lack; the engine and we have our own.
pub(crate) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        // As many waiting requests as busy programs have tasks: a full queue costs a second wake-up each.
        .set_pipeline_buffer_size(1024)
}

/// Small requests leave at once, and a peer that has vanished is noticed.
pub(crate) fn tcp() -> TcpSettings {
    // A connection that only waits for pushes sends nothing. Only the keep-alive notices that its peer has gone.
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(1));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(10));
    settings
}

/// The account, the protocol and the database of a connection.
pub(crate) fn redis_settings(user: Option<&str>, password: Option<&str>, db: i64) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default()
        .set_db(db)
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("dlock", env!("CARGO_PKG_VERSION"));
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    settings
}

/// The place of a server that is reached by TCP.
pub(crate) fn tcp_address(host: String, port: u16, tls: bool) -> ConnectionAddr {
    match tls {
        false => ConnectionAddr::Tcp(host, port),
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    }
}
