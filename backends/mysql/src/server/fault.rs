//! The server's errors, as errors of the contract.

use dlock_contract::{Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// The error of the contract for an error of the server. The server's text is kept only if it cannot contain the account.
pub(crate) fn fault(error: sqlx::Error) -> Error {
    let code = number(&error).map(|number| number.to_string());
    let mapped = map_error(error);
    match code {
        Some(code) => mapped.with_code(&code),
        None => mapped,
    }
}

/// The same for a connection that was not made: it says what to check, and what to write.
pub(crate) fn not_connected(error: sqlx::Error) -> Error {
    let wants_tls = error.as_database_error().is_some_and(|error| error.message().contains("insecure transport"));
    let told = match number(&error) {
        Some(_) if wants_tls => Some((
            ErrorKind::Unsupported { need: "an encrypted connection (tls=verify)".into() },
            "the server takes encrypted connections alone (require_secure_transport); write tls=verify, and ca if its authority is \
             your own",
        )),
        // The server says the same if the account wants TLS, and MariaDB also if the server does.
        Some(1045 | 1698) => Some((
            ErrorKind::PermissionDenied,
            "the server refuses the user or the password; check both, and if it wants TLS (REQUIRE SSL, require_secure_transport), write tls=verify",
        )),
        Some(1044) => Some((
            ErrorKind::PermissionDenied,
            "the account may not use the database that the URL names, or there is none of this name; check the name, and GRANT the \
             account its rights",
        )),
        Some(1049) => Some((
            ErrorKind::ConfigInvalid { field: "url".into() },
            "the server does not have the database that the URL names; check the name, or CREATE DATABASE",
        )),
        _ => None,
    };
    if let (Some((kind, text)), Some(number)) = (told, number(&error)) {
        // The server's texts name the account, so they are left out.
        return Error::new(kind, text).with_code(&number.to_string());
    }
    dlock_sql::not_connected("MySQL or MariaDB", error).unwrap_or_else(fault)
}

fn map_error(error: sqlx::Error) -> Error {
    let mapped = match number(&error) {
        Some(1142 | 1143) => {
            let missing = missing_rights(&error);
            return Error::new(
                ErrorKind::PermissionDenied,
                format!("the account lacks a right on dlock's table: {missing}; locks need SELECT, INSERT and UPDATE"),
            );
        }
        // Also an account that is locked, by hand or after wrong passwords.
        Some(1044 | 1045 | 1130 | 1227 | 1370 | 1698 | 3118 | 3955 | 4150 | 4151) => {
            return Error::new(ErrorKind::PermissionDenied, "the server refuses the account or its request");
        }
        // A table is also full if its file cannot grow.
        Some(1021 | 1114) => Error::outage("the server's disk is full"),
        Some(1040) => Error::outage("the server has no connection left"),
        // The server's text names the account.
        Some(1203 | 1226) => return Error::outage("the server has no connection left for the account"),
        Some(1205 | 3572) => Error::outage("another session has kept a row of dlock's table locked for too long"),
        // MariaDB with `innodb_snapshot_isolation`, in a transaction that has read the row before.
        Some(1020) => {
            Error::new(ErrorKind::Conflict, "another writer has changed the row since the transaction has read it")
        }
        Some(1213 | 3101) => Error::outage("the server rolled the request back because of concurrent ones"),
        Some(1317 | 1969 | 3024) => Error::outage("the server interrupted the request"),
        Some(1053 | 1927 | 3169 | 4031) => Error::outage("the server ended the session"),
        Some(3058) => Error::outage("the server found a deadlock among named locks"),
        // The token is the only number that a statement adds to and that can reach the end of its range.
        Some(1690) => Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up"),
        Some(1290 | 1792 | 1836) => Error::new(ErrorKind::NotPrimary, "the server is read-only"),
        Some(3989) => Error::new(ErrorKind::NotPrimary, "the database is read-only"),
        Some(1049) => Error::config("url", "the server does not have the database that the URL names"),
        Some(1054 | 1136 | 1146 | 1264 | 1364 | 1406) => {
            Error::new(ErrorKind::SchemaMismatch, "dlock's table is missing or has another form")
        }
        Some(number) => {
            // Most codes are states that pass, such as `offline_mode`, or a node of Galera that is not ready. A statement that the
            // server does not understand, or does not do, stays so.
            let is_for_good = matches!(number, 1064 | 1149 | 1235 | 1665);
            Error::outage(format!("the server refuses the request with error {number}")).with_retryable(!is_for_good)
        }
        None => match &error {
            // A failure in rustls comes as `InvalidData`.
            sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => Error::outage(
                "TLS with the server failed: the certificate was not accepted, or one side does not speak TLS",
            ),
            sqlx::Error::Io(_) => Error::outage("the connection to the server failed"),
            sqlx::Error::Tls(_) => {
                return Error::new(
                    ErrorKind::Unsupported { need: "TLS at the server, and files of the right kind".into() },
                    "the server does not speak TLS, or a file named by ca, cert or key cannot be used",
                );
            }
            // The server wants the password in full, and the client is not configured to send it so.
            sqlx::Error::Configuration(_) => {
                return Error::new(
                    ErrorKind::Unsupported { need: "an encrypted connection for this account (tls=verify)".into() },
                    "the account's kind of password (caching_sha2_password) is sent over encrypted connections only: \
                     add tls=verify",
                );
            }
            _ => Error::new(ErrorKind::Protocol, "the server gave an invalid answer"),
        },
    };
    mapped.because(error)
}

/// The missing rights that the server's text names. The rest of the text is not used, because it names the account.
fn missing_rights(error: &sqlx::Error) -> String {
    let text = error.as_database_error().map_or("", |error| error.message());
    let named = text.split(" command denied").next().unwrap_or_default();
    let rights = ["SELECT", "INSERT", "UPDATE", "CREATE"];
    let missing: Vec<_> =
        rights.into_iter().filter(|right| named.split([' ', ',']).any(|word| word == *right)).collect();
    if missing.is_empty() { "the server does not say which".into() } else { missing.join(", ") }
}

/// Whether the session has ended on the server too. Its named locks end with it.
pub(crate) fn has_ended(error: &sqlx::Error) -> bool {
    match number(error) {
        Some(number) => matches!(number, 1053 | 1927 | 3169 | 4031),
        // After an error of the socket or of the protocol, the client closes the socket.
        None => true,
    }
}

pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}
