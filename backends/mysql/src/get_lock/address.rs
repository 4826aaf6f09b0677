//! The server, the database and the account of a URL.

use std::fmt;
use std::sync::Arc;

use dlock_contract::engine::Names;
use dlock_contract::{Error, Result};
use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;

use super::tls::Tls;
use super::url::{decode, wrong};

/// The parts of a URL. `Debug` shows no account.
#[derive(Clone)]
pub(super) struct Address {
    /// Ready to connect with. It holds the password, so it is never printed.
    pub(super) options: MySqlConnectOptions,
    names: Arc<Names>,
    shown: String,
}

impl Address {
    /// Waits until the host's name is known. The client looks it up once more, which is quick then: it checks the
    /// server's certificate by the name, so an address would not do. A look-up that hangs so costs one thread, whoever
    /// connects.
    ///
    /// # Errors
    /// If the name cannot be looked up.
    pub(super) async fn is_known(&self) -> Result<()> {
        if self.options.get_socket().is_some() {
            return Ok(());
        }
        match self.names.addresses(self.options.get_host(), self.options.get_port()).await {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(Error::outage(format!("the host name of the server cannot be looked up: {}", error.kind())))
            }
        }
    }

    /// Reads `mysql://user:password@host:port/database`, with `socket`, `tls`, `ca`, `cert` and `key` behind a `?`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        // The last `@`, so that one in a password does no harm; a host, a database and a socket have none.
        let (account, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let (place, query) = place.split_once('?').unwrap_or((place, ""));
        let (host, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, password, database) = (decode(user)?, decode(password)?, decode(database)?);
        if database.is_empty() || database.contains('/') {
            return Err(wrong("name the database for dlock's table: mysql://user@host:3306/database"));
        }
        let (socket, tls) = parameters(query)?;
        let (host, port) = host_and_port(host)?;
        if host.is_empty() && socket.is_none() {
            return Err(wrong("the host is missing: mysql://user@host:3306/database"));
        }
        let mut options = MySqlConnectOptions::new()
            .host(&host)
            .port(port)
            .database(&database)
            // Each of these would cost a round trip at every connect.
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .disable_statement_logging();
        if !user.is_empty() {
            options = options.username(&user);
        }
        if !password.is_empty() {
            options = options.password(&password);
        }
        options = tls.apply(options, &host, socket.is_some())?;
        let mut shown = format!("{host}:{port}/{database}");
        if let Some(socket) = socket {
            shown = format!("{socket}/{database}");
            options = options.socket(socket);
        }
        Ok(Self { options, names: Arc::default(), shown })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The socket's path, if one is given, and what is said about TLS. Parameters are not echoed: a password may stand
/// there by mistake.
fn parameters(query: &str) -> Result<(Option<String>, Tls)> {
    let (mut socket, mut tls) = (None, Tls::default());
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "socket" if !value.is_empty() => socket = Some(decode(value)?),
            name if tls.set(name, value)? => {}
            name if name.to_ascii_lowercase().starts_with("ssl") => {
                return Err(wrong(
                    "write tls=verify, tls=require or tls=off, and ca, cert and key, instead of ssl-mode",
                ));
            }
            _ => return Err(wrong("the parameters of a mysql:// URL are tls, ca, cert, key and socket")),
        }
    }
    Ok((socket, tls))
}

fn host_and_port(place: &str) -> Result<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        // An address of version 6 stands in brackets, since it has colons itself.
        Some(rest) => rest.split_once(']').ok_or_else(|| wrong("a `[` in the host is not closed"))?,
        None => place.find(':').map_or((place, ""), |colon| place.split_at(colon)),
    };
    if host.contains(',') {
        return Err(wrong("name one host only: a lock is on one server and excludes no caller of another server"));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => 3306,
        Some(port) => port.parse().map_err(|_| wrong("the port must be a number from 1 to 65535"))?,
        None => return Err(wrong("only a port may follow the host")),
    };
    Ok((decode(host)?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (String, u16, String, Option<String>) {
        let options = Address::parse(url).unwrap().options;
        let socket = options.get_socket().map(|socket| socket.display().to_string());
        (options.get_host().into(), options.get_port(), options.get_username().into(), socket)
    }

    #[test]
    fn a_url_is_read() {
        assert_eq!(read("mysql://ann@db.example/locks?tls=off"), ("db.example".into(), 3306, "ann".into(), None));
        assert_eq!(read("mariadb://ann:x@[::1]:3307/locks"), ("::1".into(), 3307, "ann".into(), None));
        assert_eq!(read("mysql://a%40n:p@h:1/d?tls=off").2, "a@n");
        assert_eq!(read("mysql://ann@/locks?socket=%2Frun%2Fs.sock").3.unwrap(), "/run/s.sock");
    }

    #[test]
    fn any_password_stays_out_of_sight() {
        for password in ["canary", "can@ary", "can/ary?x#y:z", "can%40ary"] {
            let address = Address::parse(&format!("mysql://ann:{password}@db.example/locks?tls=off")).unwrap();
            assert_eq!(format!("{address:?}"), "db.example:3306/locks");
            assert_eq!(address.options.get_host(), "db.example");
        }
        for bad in [
            "mysql://ann:canary@db.example",
            "mysql://ann:canary%@db/locks",
            "mysql://ann:canary@db:port/locks",
            "mysql://ann:canary@one,two/locks",
            "mysql://ann@db/locks?password=canary",
            "mysql://ann:canary@db/locks?ssl-mode=DISABLED",
            "mysql://ann:canary@db/locks",
            "mysql://ann:canary@db/locks?tls=canary",
            "mysql://ann:canary@db/locks?tls=verify&ca=/nowhere/canary",
            "mysql://ann:canary@localhost/locks?tls=off&ca=Cargo.toml",
            "mysql://ann:canary@/locks?socket=/canary&tls=verify",
            "mysql://ann:canary@[::1/locks",
            "mysql://ann:canary@/locks",
            "canary",
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
