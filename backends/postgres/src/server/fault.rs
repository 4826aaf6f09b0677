//! The server's errors, as errors of the contract.

use dlock_contract::{Error, ErrorKind};
use dlock_sql::Refusal;

/// The error of the contract for an error of the server. The server's text is kept only if it cannot contain the account.
pub(crate) fn fault(error: sqlx::Error) -> Error {
    let code = state(&error);
    let mapped = map_error(error, code.as_deref());
    match code {
        Some(code) => mapped.with_code(&code),
        None => mapped,
    }
}

/// The same for a connection that was not made: it says what to check, and what to write.
pub(crate) fn not_connected(error: sqlx::Error) -> Error {
    let code = state(&error);
    // The server says so, in English, also if no line would match with TLS. The text names the account, so it is left out.
    let wants_tls = error.as_database_error().is_some_and(|error| error.message().contains("no encryption"));
    let told = match code.as_deref() {
        Some("28000") if wants_tls => Some((
            ErrorKind::PermissionDenied,
            "no line of pg_hba.conf lets this account in without TLS; if one does with TLS, write tls=verify, and ca if the server's \
             authority is your own; else add a line",
        )),
        Some("28000") => Some((
            ErrorKind::PermissionDenied,
            "the server refuses the account: it has none of this name, or the account may not log in (NOLOGIN), needs a client \
             certificate, or has no line in pg_hba.conf; check the user in the URL",
        )),
        Some("28P01") => {
            Some((ErrorKind::PermissionDenied, "the server refuses the user or the password; check both in the URL"))
        }
        Some("42501") => Some((
            ErrorKind::PermissionDenied,
            "the account may not connect to the database that the URL names; GRANT CONNECT ON DATABASE to it",
        )),
        Some("3D000") => Some((
            ErrorKind::ConfigInvalid { field: "url".into() },
            "the server does not have the database that the URL names; check the name, or CREATE DATABASE",
        )),
        _ => None,
    };
    if let (Some((kind, text)), Some(code)) = (told, code) {
        return Error::new(kind, text).with_code(&code);
    }
    dlock_sql::not_connected("PostgreSQL", error).unwrap_or_else(fault)
}

/// The code for a schema that is not there.
pub(crate) const NO_SCHEMA: &str = "3F000";

/// The URL names no schema, and the tables are to be made in the first one of the search_path.
pub(crate) fn no_schema_in_path() -> Error {
    let text = "no schema of the account's search_path exists: set search_path, or write schema=… in the URL";
    Error::config("schema", text).with_code(NO_SCHEMA)
}

fn map_error(error: sqlx::Error, code: Option<&str>) -> Error {
    let mapped = match code {
        Some("42501") => {
            // It names the object, and not the account.
            let object = error.as_database_error().map(|error| error.message()).unwrap_or_default();
            let text = format!(
                "the account lacks a right on dlock's tables, their schema or the sequence of tokens ({object}); locks need SELECT, \
                 INSERT and UPDATE"
            );
            Error::new(ErrorKind::PermissionDenied, text)
        }
        // The server's text names the account.
        Some("28000" | "28P01") => {
            return Error::new(ErrorKind::PermissionDenied, "the server refuses the account or its password");
        }
        Some("3D000") => return Error::config("url", "the server does not have the database that the URL names"),
        Some(NO_SCHEMA) => {
            return Error::config(
                "schema",
                "the database does not have the schema that the URL names; check the name, or CREATE SCHEMA",
            );
        }
        // Also the limit of connections of one account.
        Some("53300") => return Error::outage("the server has no connection left"),
        Some("53100") => Error::outage("the server's disk is full"),
        Some("55P03") => Error::outage("another session has kept a row of dlock's table locked for too long"),
        Some("40001" | "40P01") => Error::outage("the server rolled the request back because of concurrent ones"),
        Some("57014") => Error::outage("the server interrupted the request"),
        Some("57P01" | "57P02" | "57P03" | "57P05") => Error::outage("the server ends the session, or is starting"),
        // The token is the only number that a statement adds to and that can reach the end of its range.
        Some("22003" | "2200H") => Error::new(ErrorKind::FenceExhausted, "the fencing counter is used up"),
        Some("25006") => Error::new(ErrorKind::NotPrimary, "the server is read-only"),
        Some("26000" | "42P05") => Error::outage(
            "a pooler gives each transaction another session, which was not noticed when the store was opened: connect to the \
             server itself, or open the store anew",
        ),
        Some("42P01" | "42703" | "42804" | "23502" | "22001" | "42P10") => {
            Error::new(ErrorKind::SchemaMismatch, "a table of dlock is missing or has another form")
        }
        Some(code) if code.starts_with("08") => Error::outage("the connection to the server failed"),
        Some(code) => {
            // Most codes are states that pass, such as a database that allows no connections for a while. A statement that the
            // server does not understand, or does not do, stays so.
            let is_for_good = ["0A", "22", "23", "42"].iter().any(|class| code.starts_with(class));
            Error::outage(format!("the server refuses the request with error {code}")).with_retryable(!is_for_good)
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
            // The client's text contains a character of the password.
            sqlx::Error::Configuration(_) => {
                return Error::new(
                    ErrorKind::Unsupported { need: "a user and a password of characters that SASLprep takes".into() },
                    "the account's name or password has a character that the client library does not send, such as an emoji \
                     (SCRAM, RFC 4013): give the account a password of letters, digits and signs",
                );
            }
            _ => Error::new(ErrorKind::Protocol, "the server gave an invalid answer"),
        },
    };
    mapped.because(error)
}

/// The class of an error, for the algorithms of `dlock-sql`.
pub(crate) fn refusal(error: &sqlx::Error) -> Refusal {
    match state(error).as_deref() {
        Some("23505") => Refusal::Duplicate,
        Some("40001" | "40P01") => Refusal::Undone,
        Some("55P03") => Refusal::RowLocked,
        Some(code) if code.starts_with("08") || code.starts_with("57P") => Refusal::SessionEnded,
        // A transaction was left open, or a pooler has changed the session.
        Some(code) if code.starts_with("25") || code.starts_with("26") => Refusal::SessionEnded,
        Some(_) => Refusal::Other,
        // After an error of the socket or of the protocol, the state of the session is unknown.
        None => Refusal::SessionEnded,
    }
}

pub(crate) fn state(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.into_owned())
}
