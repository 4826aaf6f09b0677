//! Failures of the client and of the server, as errors of the contract.
//!
//! Texts of the server are looked at but never passed on: some repeat the arguments, and an argument is an owner.

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

use ::redis::{ErrorKind as Kind, RedisError, ServerError, Value};
use dlock_contract::{Error, ErrorKind};

use crate::layout::token::TOKEN_END;

/// An error of the client, or one of the server that the client has wrapped.
pub(crate) fn client(error: &RedisError) -> Error {
    match error.kind() {
        Kind::AuthenticationFailed => by_code("WRONGPASS", ""),
        Kind::RESP3NotSupported => too_old(),
        Kind::Parse | Kind::UnexpectedReturnType => Error::new(
            ErrorKind::Protocol,
            "the server's answer is not in Redis's protocol; check that the port is one of Redis, and write rediss:// if it wants TLS",
        ),
        Kind::Io => {
            // Only the kind: the text of an I/O error may name a path or an address that came from the URL.
            let wrapped = error.source().and_then(|source| source.downcast_ref::<Arc<dyn StdError + Send + Sync>>());
            let io = wrapped.and_then(|wrapped| wrapped.downcast_ref::<io::Error>());
            io.map_or_else(|| Error::outage("the connection to Redis failed"), self::io)
        }
        _ => match error.code() {
            Some(code) => by_code(code, error.detail().unwrap_or_default()),
            None => Error::new(ErrorKind::Protocol, "the Redis client refused the request"),
        },
    }
}

/// A failure of a socket.
pub(crate) fn io(error: &io::Error) -> Error {
    if error.get_ref().is_some_and(|cause| cause.is::<TooLarge>()) {
        return too_large();
    }
    match error.kind() {
        io::ErrorKind::InvalidData => Error::outage(
            "TLS with Redis failed: the certificate was not accepted, or the port does not speak TLS; name the authority \
             with `ca`, or write redis:// for a port without TLS",
        ),
        io::ErrorKind::ConnectionRefused => Error::outage(
            "nobody listens for Redis there (connection refused); check the host and the port, and whether Redis runs",
        ),
        // A port that wants TLS ends a connection without it.
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Error::outage(
            "the server ended the connection to Redis; if it does so each time, write rediss:// if the port wants TLS",
        ),
        kind => Error::outage(format!("the connection to Redis failed: {kind}")),
    }
}

pub(crate) fn too_large() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the server sent an answer of more than 16 MB, so the connection was ended; check that the URL leads to the right Redis",
    )
}

/// An error that the server has answered.
pub(crate) fn server(error: &ServerError) -> Error {
    by_code(error.code(), error.details().unwrap_or_default())
}

/// An answer of a shape that the command does not have, or an error of the server.
pub fn unexpected(answer: &Value) -> Error {
    match answer {
        Value::ServerError(error) => server(error),
        _ => Error::new(ErrorKind::Protocol, "Redis gave an answer that the command never gives"),
    }
}

/// Whether the answer says that the value of the key is not a string.
pub fn is_wrong_type(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// A number that the counter gave, and that cannot be a token.
pub(crate) fn bad_token(token: u64) -> Error {
    if token >= TOKEN_END {
        return Error::new(ErrorKind::FenceExhausted, "the fencing counter in Redis has left its range (dl1:fence)");
    }
    Error::new(
        ErrorKind::FenceRegression,
        "the fencing counter in Redis cannot be set: the server's clock is before 2005",
    )
}

pub(crate) fn too_old() -> Error {
    Error::new(
        ErrorKind::Unsupported { need: "Redis 7.0 or newer".into() },
        "this server is older than Redis 7.0 and lacks SET with NX and GET, or its command HELLO, which logs in, was renamed",
    )
}

fn by_code(code: &str, detail: &str) -> Error {
    let error = meaning(code, detail);
    // The server's codes are words in capitals; an owner is not.
    if code.bytes().all(|byte| byte.is_ascii_uppercase()) { error.with_code(code) } else { error }
}

fn meaning(code: &str, detail: &str) -> Error {
    let outage = |text: &'static str| Error::outage(text);
    match code {
        "LOADING" => outage("Redis is loading its data (LOADING)"),
        "BUSY" | "UNKILLABLE" => outage("Redis is busy with a script (BUSY)"),
        "MASTERDOWN" => outage("the replica has lost its primary (MASTERDOWN)"),
        "CLUSTERDOWN" => outage("the cluster is down (CLUSTERDOWN)"),
        "TRYAGAIN" => outage("the cluster is moving the slot (TRYAGAIN)"),
        "OOM" => outage("Redis is at its maxmemory and takes no writes (OOM)"),
        "MISCONF" => outage("Redis cannot save to disk and takes no writes (MISCONF)"),
        "NOREPLICAS" => outage("Redis has too few replicas in reach and takes no writes (NOREPLICAS)"),
        // The server was the primary when it was connected to, so there is or will be another one.
        "READONLY" => replica(),
        "NOPERM" => no_permission(detail),
        "NOAUTH" => Error::new(
            ErrorKind::PermissionDenied,
            "Redis requires a password (NOAUTH): write user:password@ or :password@ before the host",
        ),
        "WRONGPASS" => {
            Error::new(ErrorKind::PermissionDenied, "Redis refuses the user or the password in the URL (WRONGPASS)")
        }
        "WRONGTYPE" => conflict(),
        "MOVED" | "ASK" => no_cluster(),
        "CROSSSLOT" => {
            Error::new(ErrorKind::Internal, "one lock's keys lie in several slots (CROSSSLOT); please report it")
        }
        _ if detail.contains("access a non local key") => {
            outage("a part of the lock is on another server of the cluster")
        }
        _ if detail.contains("increment or decrement would overflow") => {
            Error::new(ErrorKind::FenceExhausted, "the fencing counter in Redis is used up")
        }
        _ if detail.contains("not an integer") => {
            Error::new(ErrorKind::CorruptState, "the fencing counter in Redis, dl1:fence, is no number")
        }
        // How Redis 7.0 says NOPERM of what a script does.
        _ if detail.contains("user executing the script can't") || detail.contains("ACL failure in script") => {
            no_permission(detail)
        }
        _ if detail.contains("max number of clients") => outage("Redis takes no more connections (maxclients)"),
        _ if detail.contains("DB index is out of range") => Error::config(
            "url",
            "Redis has no database with the number in the URL; use a smaller number, or set `databases` in its configuration",
        ),
        _ if detail.contains("cluster support disabled") => no_part_of_a_cluster(),
        _ if detail.contains("SELECT is not allowed in cluster mode") => no_cluster(),
        _ if detail.contains("nknown command") && named(detail, "nknown command ") == Some("SENTINEL") => {
            Error::config(
                "url",
                "this server is no sentinel; name the sentinels (usually port 26379), or begin the URL with redis://",
            )
        }
        // Inside of a script this error has another form, without the name of the command.
        _ if detail.contains("nknown command") || detail.contains("nknown Redis command") => {
            unknown_command(named(detail, "nknown command ").unwrap_or_default())
        }
        _ => Error::new(ErrorKind::Protocol, "Redis refused the request for a reason that dlock does not know"),
    }
}

/// The command that the server does not know, or nothing where it does not say which one.
pub(crate) fn unknown_command(command: &str) -> Error {
    let need = "a Redis with scripts, and none of its commands renamed".into();
    let command = if command.is_empty() { "a command that locks need".to_owned() } else { with_purpose(command) };
    Error::new(
        ErrorKind::Unsupported { need },
        format!("the server does not know {command}: it was renamed or switched off (rename-command)"),
    )
}

/// A command, and what dlock needs it for.
pub(crate) fn with_purpose(command: &str) -> String {
    let command = command.to_ascii_lowercase();
    let purpose = match &*command {
        "hello" | "auth" | "select" | "client" => "to log in",
        "role" => "to tell a primary from a replica",
        "evalsha" | "eval" | "script" | "script|load" => "to release and renew, which are scripts",
        "set" | "get" | "del" | "pexpire" | "pttl" | "exists" => "for the lock itself",
        "incrby" | "time" => "for fencing tokens",
        "zadd" | "zrem" | "zpopmin" | "hset" | "hget" | "hdel" => "for the wait queue",
        "cluster" | "asking" => "to find the servers of a cluster",
        "wait" => "for wait_replicas",
        _ => return format!("`{command}`"),
    };
    format!("`{command}` ({purpose})")
}

/// The word in quotes after this text; only one that can be the name of a command and no argument.
fn named<'a>(detail: &'a str, after: &str) -> Option<&'a str> {
    let (_, rest) = detail.split_once(after)?;
    let (word, _) = rest.strip_prefix(['\'', '`'])?.split_once(['\'', '`'])?;
    let is_name = word.len() <= 32
        && (word.bytes().all(|byte| byte.is_ascii_lowercase() || b"|-".contains(&byte))
            || word.bytes().all(|byte| byte.is_ascii_uppercase()));
    is_name.then_some(word)
}

/// A server that was the primary when it was connected to.
pub(crate) fn replica() -> Error {
    Error::new(ErrorKind::NotPrimary, "this Redis is a replica, and a lock on a replica excludes nobody (READONLY)")
        .with_retryable(true)
}

/// Names the command, if the server does.
fn no_permission(detail: &str) -> Error {
    // Redis writes command names in lower case. A word in upper case may be an argument of the user's, so it is not shown.
    let command = named(detail, "run the ").filter(|command| command.bytes().all(|byte| !byte.is_ascii_uppercase()));
    let text = match command {
        Some(command) => format!("the Redis user may not run {}, which locks need (NOPERM)", with_purpose(command)),
        None if detail.contains("channel") => {
            "the Redis user may not publish or subscribe to dl1:p:*, or to a lock's channel of Redisson's (NOPERM)"
                .to_owned()
        }
        None if detail.contains("key") => {
            "the Redis user may not touch keys under dl1:*, or the shared name of a lock (NOPERM)".to_owned()
        }
        None => "the Redis user may not run a command that locks need, or not on dl1:* (NOPERM)".to_owned(),
    };
    Error::new(ErrorKind::PermissionDenied, text)
}

/// The URL is for one server, but the server is part of a cluster.
pub fn no_cluster() -> Error {
    Error::new(
        ErrorKind::Unsupported { need: "a URL that begins with redis-cluster://".into() },
        "this server is part of a Redis Cluster: its URL begins with redis-cluster://",
    )
}

/// The URL is for a cluster, but the server is not part of one.
pub(crate) fn no_part_of_a_cluster() -> Error {
    Error::config("url", "this Redis is no part of a cluster: its URL begins with redis://")
}

/// The key holds a lock of another mode, or a foreign client's value.
pub fn conflict() -> Error {
    Error::new(
        ErrorKind::KeyConflict,
        "the key is held in another mode, or has a value that dlock did not write: `dlock show` tells who holds it; lock one key in \
         one mode, and use another key if the value is a foreign client's",
    )
}

/// An answer was too large, so its connection was ended.
#[derive(Debug)]
pub(crate) struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one answer of the server is larger than 16 MB")
    }
}

impl StdError for TooLarge {}

/// The server may evict locks.
pub(crate) fn evicts() -> Error {
    Error::config(
        "maxmemory-policy",
        "Redis may evict locks when its memory is full: set maxmemory-policy to noeviction, or add eviction=allow to the URL",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_kind_and_repeats_nothing() {
        let kind = |code| by_code(code, "SECRET").kind().clone();
        for code in ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "NOREPLICAS"] {
            let error = by_code(code, "SECRET");
            assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some(code)));
            assert_eq!(error.again().code(), Some(code));
            assert!(
                error.is_retryable() && error.to_string().contains(code) && !format!("{error:?}").contains("SECRET")
            );
        }
        assert_eq!(kind("READONLY"), ErrorKind::NotPrimary);
        assert!(by_code("READONLY", "").is_retryable());
        assert_eq!(kind("WRONGTYPE"), ErrorKind::KeyConflict);
        for code in ["NOPERM", "NOAUTH", "WRONGPASS"] {
            assert_eq!(kind(code), ErrorKind::PermissionDenied);
        }
        let named = by_code("NOPERM", "User x has no permissions to run the 'script|load' command");
        assert!(named.to_string().contains("`script|load`"), "{named}");
        let unknown = by_code("ERR", "unknown command 'ROLE', with args beginning with: 'SECRET'");
        assert!(matches!(unknown.kind(), ErrorKind::Unsupported { .. }));
        assert!(
            unknown.to_string().contains("`role` (to tell a primary") && !format!("{unknown:?}").contains("SECRET")
        );
        for detail in ["unknown command 'a SECRET'", "Unknown Redis command called from script script: 1"] {
            let unnamed = by_code("ERR", detail);
            assert!(matches!(unnamed.kind(), ErrorKind::Unsupported { .. }) && !unnamed.to_string().contains("SECRET"));
        }
        let hidden = by_code("NOPERM", "no permissions to run the 'SECRET' command");
        assert!(!hidden.to_string().contains("SECRET"), "{hidden}");
        for detail in ["The user executing the script can't run this command", "ACL failure in script: x"] {
            assert_eq!(*by_code("ERR", detail).kind(), ErrorKind::PermissionDenied);
        }
        assert!(matches!(kind("MOVED"), ErrorKind::Unsupported { .. }));
        assert_eq!(kind("CROSSSLOT"), ErrorKind::Internal);
        assert_eq!(kind("ERR"), ErrorKind::Protocol);
        assert_eq!(*by_code("ERR", "increment or decrement would overflow").kind(), ErrorKind::FenceExhausted);
    }
}
