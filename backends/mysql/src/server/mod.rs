//! The servers, the database and the account of a URL.

pub(crate) mod catalogue;
pub(crate) mod cluster;
pub(crate) mod fault;
pub(crate) mod other_tables;

use std::fmt;

use dlock_contract::{Error, ErrorKind, Result};
use dlock_sql::{Credentials, Hosts, Login, Settings, TableNames};
use dlock_store::{Address, Clock, OptionRow, Secret, Tls, TlsMode, UrlBody, UrlForm, refuse_older};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions, Row};

use crate::server::fault::{fault, has_ended, not_connected};

const DEFAULT_PORT: u16 = 3306;

/// `mysql://user:password@host:port/database`.
pub(crate) const FORM: UrlForm = UrlForm::new(
    "a MySQL URL",
    "mysql://user:password@host[:port][,host[:port]]/database",
    &["mysql", "mariadb"],
    UrlBody::HostsAfterLastAt,
)
.port(|_| DEFAULT_PORT)
.options(&[
    OptionRow::TLS,
    OptionRow::CA,
    OptionRow::CERT,
    OptionRow::KEY,
    OptionRow::new("socket", "the path of a Unix socket"),
    OptionRow::one_of("way", &["lease", "named", "row"]),
    dlock_sql::TABLE_PREFIX,
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
    dlock_sql::LAYOUT[2],
])
.elsewhere(&[("ssl", "write tls=verify, tls=require or tls=off, and ca, cert and key, instead of ssl-mode")]);

/// Makes the session use the server's clock. `init_connect` may have fixed the session's time, and then all leases of others
/// would seem ended, or none. MariaDB's `secure_timestamp` refuses this statement, but then nobody can have fixed the time.
const OWN_TIME: &str = "SET SESSION timestamp = DEFAULT";

/// How to connect to the servers. `Debug` does not show the account.
#[derive(Clone)]
pub(crate) struct Server {
    /// The connect options, one for each host. They contain the password, so they are never printed.
    hosts: Hosts<MySqlConnectOptions>,
    credentials: Option<Credentials>,
    pub(crate) tables: TableNames,
    shown: String,
}

impl Server {
    pub(crate) fn of(address: &Address) -> Result<Self> {
        let database = match address.path() {
            [database] if !database.contains('/') => database,
            _ => return Err(address.wrong("name the database for dlock's table")),
        };
        let socket = address.option("socket");
        let hosts: Vec<_> = address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect();
        let hosts = match (hosts.is_empty(), socket) {
            (true, None) => return Err(address.wrong("the host is missing")),
            (true, Some(_)) => vec![(String::new(), DEFAULT_PORT)],
            (false, None) => hosts,
            (false, Some(_)) if hosts.len() == 1 => hosts,
            (false, Some(_)) => return Err(address.wrong("a Unix socket leads to one server: name one host or none")),
        };
        let tls = Tls::by_option(address, socket.is_some())?;
        let (mut shown, mut all) = (Vec::new(), Vec::new());
        for (host, port) in &hosts {
            let mut options = base_options(MySqlConnectOptions::new().host(host).port(*port).database(database));
            if let Some(user) = address.user() {
                options = options.username(user);
            }
            if let Some(password) = address.password().map(Secret::reveal) {
                options = options.password(password);
            }
            options = with_tls(options, &tls)?;
            if let Some(socket) = socket {
                options = options.socket(socket);
                shown.push(socket.to_owned());
            } else {
                shown.push(format!("{host}:{port}"));
            }
            all.push(options);
        }
        let shown = format!("{}/{database}", shown.join(","));
        let hosts = Hosts::new(all, Settings::connect_timeout_of(address)?);
        Ok(Self { hosts, credentials: None, tables: TableNames::of(address, None)?, shown })
    }

    /// Replaces the server by the one of these options.
    pub(crate) fn at(mut self, options: MySqlConnectOptions, address: &Address) -> Result<Self> {
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        self.shown = format!("{host}/{}", options.get_database().unwrap_or_default());
        self.hosts = Hosts::new(vec![base_options(options)], Settings::connect_timeout_of(address)?);
        Ok(self)
    }

    /// Uses the account that this provider returns at each connect.
    pub(crate) fn with_credentials(mut self, credentials: Option<Credentials>) -> Self {
        self.credentials = credentials;
        self
    }

    /// Connects to the first writable server, prepares the session with `set_up`, and returns the server's id too. Host names
    /// are looked up each time.
    pub(crate) async fn connect(&self, clock: &Clock, set_up: &'static str) -> Result<(MySqlConnection, String)> {
        let login = match &self.credentials {
            Some(credentials) => Some(credentials.get().await?),
            None => None,
        };
        let login = login.as_ref();
        self.hosts.connect(clock, |options| Box::pin(self.connect_to(with_login(options, login), set_up))).await
    }

    async fn connect_to(
        &self,
        options: MySqlConnectOptions,
        set_up: &'static str,
    ) -> Result<(MySqlConnection, String)> {
        if options.get_socket().is_none() {
            self.hosts.is_known(options.get_host(), options.get_port()).await?;
        }
        let mut conn = options.connect().await.map_err(not_connected)?;
        sqlx::raw_sql(set_up).execute(&mut conn).await.map_err(fault)?;
        if let Err(error) = sqlx::raw_sql(OWN_TIME).execute(&mut conn).await
            && has_ended(&error)
        {
            return Err(fault(error));
        }
        let server = writable_server(&mut conn).await?;
        Ok((conn, server))
    }
}

fn with_login(options: &MySqlConnectOptions, login: Option<&Login>) -> MySqlConnectOptions {
    match login {
        Some(login) => login.apply(options.clone(), MySqlConnectOptions::username, MySqlConnectOptions::password),
        None => options.clone(),
    }
}

/// Without settings that cost a round trip at each connect, and without a log of statements.
fn base_options(options: MySqlConnectOptions) -> MySqlConnectOptions {
    let options = options.pipes_as_concat(false).no_engine_substitution(false).timezone(None).set_names(false);
    options.disable_statement_logging()
}

fn with_tls(mut options: MySqlConnectOptions, tls: &Tls) -> Result<MySqlConnectOptions> {
    if tls.mode != TlsMode::Off && !cfg!(feature = "tls") {
        return Err(Error::new(
            ErrorKind::Unsupported { need: "the feature `mysql-tls`".into() },
            "TLS to MySQL and MariaDB needs the feature `mysql-tls` of dlock-rs: cargo add dlock-rs --features mysql-tls",
        ));
    }
    options = options.ssl_mode(match tls.mode {
        TlsMode::Off => MySqlSslMode::Disabled,
        TlsMode::Require => MySqlSslMode::Required,
        // Checks the host name too.
        _ => MySqlSslMode::VerifyIdentity,
    });
    if let Some(ca) = &tls.ca {
        options = options.ssl_ca_from_pem(ca.clone());
    }
    if let Some((cert, key)) = &tls.identity {
        options = options.ssl_client_cert_from_pem(cert).ssl_client_key_from_pem(key);
    }
    Ok(options)
}

/// The server's id, if the server is writable and not too old. Replication requires that a replica has another id than its
/// primary.
pub(crate) async fn writable_server(conn: &mut MySqlConnection) -> Result<String> {
    // MariaDB has no `server_uuid`.
    let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'server_id', 'server_uuid', 'version')";
    let rows = sqlx::raw_sql(sql).fetch_all(conn).await.map_err(fault)?;
    let mut server = String::new();
    for row in &rows {
        let (name, value): (String, String) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
        match (name.as_str(), value.as_str()) {
            ("read_only", "OFF" | "0") => {}
            ("read_only", _) => {
                return Err(Error::new(
                    ErrorKind::NotPrimary,
                    "the server is read-only (read_only=ON), such as a replica: a lock taken there excludes nobody on the primary; name the \
                     primary",
                ));
            }
            // The first versions with `SKIP LOCKED`, by which sweeps pass over rows that are in use.
            ("version", version) if version.contains("MariaDB") => refuse_older("MariaDB", version, "10.6")?,
            ("version", version) => refuse_older("MySQL", version, "8.0")?,
            (_, id) => server += &format!("{id};"),
        }
    }
    Ok(server)
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
        let server = parse(url).unwrap();
        let options = server.hosts.iter().next().unwrap();
        let socket = options.get_socket().map(|socket| socket.display().to_string());
        (options.get_host().into(), options.get_port(), options.get_username().into(), socket)
    }

    #[test]
    fn a_url_is_read() {
        assert_eq!(read("mysql://ann@db.example/locks?tls=off"), ("db.example".into(), 3306, "ann".into(), None));
        assert_eq!(read("mariadb://ann:x@[::1]:3307/locks"), ("::1".into(), 3307, "ann".into(), None));
        assert_eq!(read("mysql://a%40n:p@h:1/d?tls=off").2, "a@n");
        let several = parse("mysql://ann:x@one,two:1/d?tls=off").unwrap();
        assert_eq!(format!("{several:?}"), "one:3306,two:1/d");
        assert_eq!(read("mysql://ann@/locks?socket=%2Frun%2Fs.sock").3.unwrap(), "/run/s.sock");
    }

    #[test]
    fn any_password_stays_out_of_sight() {
        for password in ["canary", "can@ary", "can/ary?x#y:z", "can%40ary"] {
            let server = parse(&format!("mysql://ann:{password}@db.example/locks?tls=off")).unwrap();
            assert_eq!(format!("{server:?}"), "db.example:3306/locks");
        }
        for bad in [
            "mysql://ann:canary@db.example",
            "mysql://ann:canary%@db/locks",
            "mysql://ann:canary@db:port/locks",
            "mysql://ann:canary@one,two/locks",
            "mysql://ann:canary@one,two/locks?socket=/canary",
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
