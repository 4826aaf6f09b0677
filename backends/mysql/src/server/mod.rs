//! The server, the database and the account of an address.

pub(crate) mod fault;

use std::fmt;
use std::sync::Arc;

use dlock_contract::engine::Names;
use dlock_contract::{Address, Error, ErrorKind, OptionRow, Result, Secret, Tls, TlsMode, UrlBody, UrlForm};
use dlock_sql::Way;
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

const DEFAULT_PORT: u16 = 3306;

/// `mysql://user:password@host:port/database`.
pub(crate) const FORM: UrlForm = UrlForm::new(
    "a MySQL URL",
    "mysql://user:password@host[:port]/database",
    &["mysql", "mariadb"],
    UrlBody::HostsAfterLastAt,
)
.options(&[
    OptionRow::TLS,
    OptionRow::CA,
    OptionRow::CERT,
    OptionRow::KEY,
    OptionRow::new("socket", "the path of a Unix socket"),
    OptionRow::one_of("way", &["lease", "named", "row"]),
    dlock_sql::OPTIONS[0],
    dlock_sql::OPTIONS[1],
    dlock_sql::OPTIONS[2],
    dlock_sql::OPTIONS[3],
    dlock_sql::OPTIONS[4],
    dlock_sql::OPTIONS[5],
    dlock_sql::KEYS,
    dlock_sql::ROW_OPTIONS[0],
    dlock_sql::ROW_OPTIONS[1],
    dlock_sql::LAYOUT[0],
    dlock_sql::LAYOUT[1],
])
.elsewhere(&[("ssl", "write tls=verify, tls=require or tls=off, and ca, cert and key, instead of ssl-mode")]);

/// How to connect to the server. `Debug` shows no account.
#[derive(Clone)]
pub(crate) struct Server {
    /// Ready to connect with. It holds the password, so it is never printed.
    pub(crate) options: MySqlConnectOptions,
    names: Arc<Names>,
    shown: String,
}

/// The way of locking that the URL asks for.
pub(crate) fn way_of(address: &Address) -> Way {
    match address.option("way") {
        Some("named") => Way::Named,
        Some("row") => Way::Row,
        _ => Way::Lease,
    }
}

impl Server {
    /// Waits until the host's name is known. The client looks it up once more, which is quick then: it checks the
    /// server's certificate by the name, so an address would not do. A look-up that hangs so costs one thread, whoever
    /// connects.
    ///
    /// # Errors
    /// If the name cannot be looked up.
    pub(crate) async fn is_known(&self) -> Result<()> {
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

    pub(crate) fn of(address: &Address) -> Result<Self> {
        let database = match address.path() {
            [database] if !database.contains('/') => database,
            _ => return Err(address.wrong("name the database for dlock's table")),
        };
        let socket = address.option("socket");
        let (host, port) = match address.hosts() {
            [host] => host.or_port(DEFAULT_PORT),
            [] if socket.is_some() => (String::new(), DEFAULT_PORT),
            [] => return Err(address.wrong("the host is missing")),
            _ => {
                return Err(address
                    .wrong("name one host only: a lock is on one server and excludes no caller of another server"));
            }
        };
        let mut options = MySqlConnectOptions::new()
            .host(&host)
            .port(port)
            .database(database)
            // Each of these would cost a round trip at every connect.
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .disable_statement_logging();
        if let Some(user) = address.user() {
            options = options.username(user);
        }
        if let Some(password) = address.password().map(Secret::reveal) {
            options = options.password(password);
        }
        options = with_tls(options, Tls::by_option(address, socket.is_some())?)?;
        let mut shown = format!("{host}:{port}/{database}");
        if let Some(socket) = socket {
            shown = format!("{socket}/{database}");
            options = options.socket(socket);
        }
        Ok(Self { options, names: Arc::default(), shown })
    }
}

fn with_tls(mut options: MySqlConnectOptions, tls: Tls) -> Result<MySqlConnectOptions> {
    if tls.mode != TlsMode::Off && !cfg!(feature = "tls") {
        return Err(Error::new(
            ErrorKind::Unsupported { need: "the feature `mysql-tls`".into() },
            "TLS to MySQL and MariaDB needs the feature `mysql-tls` of dlock",
        ));
    }
    options = options.ssl_mode(match tls.mode {
        TlsMode::Off => MySqlSslMode::Disabled,
        TlsMode::Require => MySqlSslMode::Required,
        // The name too.
        _ => MySqlSslMode::VerifyIdentity,
    });
    if let Some(ca) = tls.ca {
        options = options.ssl_ca_from_pem(ca);
    }
    if let Some((cert, key)) = tls.identity {
        options = options.ssl_client_cert_from_pem(cert).ssl_client_key_from_pem(key);
    }
    Ok(options)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use dlock_testkit::slips::assert_hidden;

    use super::*;

    fn parse(url: &str) -> Result<Server> {
        Server::of(&Address::parse(url, &FORM)?)
    }

    fn read(url: &str) -> (String, u16, String, Option<String>) {
        let options = parse(url).unwrap().options;
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
            let server = parse(&format!("mysql://ann:{password}@db.example/locks?tls=off")).unwrap();
            assert_eq!(format!("{server:?}"), "db.example:3306/locks");
            assert_eq!(server.options.get_host(), "db.example");
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
            let error = parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn no_slip_in_a_url_shows_its_password() {
        let urls = [
            "mysql://user:{}@h:1/db?tls=off",
            "mysql://:{}@localhost/db",
            "mariadb://user:{}@/db?socket=/run/s.sock",
            "mysql://user:{}@h/db?tls=verify&ca=/nowhere/{}",
        ];
        assert_hidden(&urls, parse);
    }
}
