//! The servers, the database and the account of a URL.

pub(crate) mod fault;
pub(crate) mod other_tables;
pub(crate) mod pieces;

use std::fmt;

use dlock_contract::{Error, ErrorKind, Result};
use dlock_sql::{Credentials, Hosts, Login, Settings, TableNames, is_identifier};
use dlock_store::{Address, Clock, OptionRow, Secret, Tls, TlsMode, UrlBody, UrlForm, refuse_older};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Row};

use crate::server::fault::{fault, not_connected};

const DEFAULT_PORT: u16 = 5432;

/// `postgres://user:password@host:port/database`.
pub(crate) const FORM: UrlForm = UrlForm::new(
    "a PostgreSQL URL",
    "postgres://user:password@host[:port][,host[:port]]/database",
    &["postgres", "postgresql"],
    UrlBody::HostsAfterLastAt,
)
.port(|_| DEFAULT_PORT)
.options(&[
    OptionRow::TLS,
    OptionRow::CA,
    OptionRow::CERT,
    OptionRow::KEY,
    OptionRow::new("socket", "the folder of a Unix socket"),
    OptionRow::new("schema", "the schema of dlock's tables, in small letters, digits and underscores"),
    dlock_sql::TABLE_PREFIX,
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
    dlock_sql::LAYOUT[2],
])
.elsewhere(&[
    ("ssl", "write tls=verify, tls=require or tls=off, and ca, cert and key, instead of sslmode"),
    ("target_session_attrs", "of several hosts, the one that can be written to is used in any case"),
]);

/// How to connect to the servers. `Debug` does not show the account.
#[derive(Clone)]
pub(crate) struct Server {
    /// The connect options, one for each host. They contain the password, so they are never printed.
    hosts: Hosts<PgConnectOptions>,
    credentials: Option<Credentials>,
    pub(crate) tables: TableNames,
    shown: String,
}

impl Server {
    pub(crate) fn of(address: &Address) -> Result<Self> {
        let database = match address.path() {
            [database] if !database.contains('/') => database,
            _ => return Err(address.wrong("name the database for dlock's tables")),
        };
        let user = address.user().filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| {
            address.wrong("it must name the account, because the default would be the user of this process")
        })?;
        let socket = address.option("socket");
        let hosts: Vec<_> = address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect();
        let hosts = match (hosts.is_empty(), socket) {
            (true, None) => return Err(address.wrong("the host is missing")),
            (true, Some(_)) => vec![(String::new(), DEFAULT_PORT)],
            (false, _) => hosts,
        };
        let tls = Tls::by_option(address, socket.is_some())?;
        let mut shown = Vec::new();
        let mut all = Vec::new();
        for (host, port) in &hosts {
            // The user's password file is not read. The client library does read some environment variables.
            let mut options = PgConnectOptions::new_without_pgpass()
                .host(host)
                .port(*port)
                .database(database)
                .username(user)
                .password(address.password().map(Secret::reveal).unwrap_or_default())
                .application_name("dlock");
            options = with_tls(base_options(options), &tls)?;
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
        Ok(Self { hosts, credentials: None, tables: TableNames::of(address, schema(address)?.as_deref())?, shown })
    }

    /// Replaces the server by the one of these options.
    pub(crate) fn at(mut self, options: PgConnectOptions, address: &Address) -> Result<Self> {
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        self.shown = format!("{host}/{}", options.get_database().unwrap_or_default());
        self.hosts =
            Hosts::new(vec![base_options(options.application_name("dlock"))], Settings::connect_timeout_of(address)?);
        Ok(self)
    }

    /// Uses the account that this provider returns at each connect.
    pub(crate) fn with_credentials(mut self, credentials: Option<Credentials>) -> Self {
        self.credentials = credentials;
        self
    }

    /// Connects to the first writable server, and returns its id too. Host names are looked up each time.
    pub(crate) async fn connect(&self, clock: &Clock) -> Result<(PgConnection, String)> {
        self.connect_with(clock, Clone::clone).await
    }

    /// Like `connect`, with a mark in the first message of the session.
    pub(crate) async fn connect_marked(&self, clock: &Clock, mark: &str) -> Result<(PgConnection, String)> {
        self.connect_with(clock, |options| options.clone().options([("dlock.mark", mark)])).await
    }

    async fn connect_with(
        &self,
        clock: &Clock,
        with: impl Fn(&PgConnectOptions) -> PgConnectOptions,
    ) -> Result<(PgConnection, String)> {
        let login = match &self.credentials {
            Some(credentials) => Some(credentials.get().await?),
            None => None,
        };
        let login = login.as_ref();
        self.hosts.connect(clock, |options| Box::pin(self.connect_to(with_login(with(options), login)))).await
    }

    async fn connect_to(&self, options: PgConnectOptions) -> Result<(PgConnection, String)> {
        if options.get_socket().is_none() {
            self.hosts.is_known(options.get_host(), options.get_port()).await?;
        }
        let mut conn = options.connect().await.map_err(not_connected)?;
        let server = writable_server(&mut conn).await?;
        Ok((conn, server))
    }
}

fn with_login(options: PgConnectOptions, login: Option<&Login>) -> PgConnectOptions {
    match login {
        Some(login) => login.apply(options, PgConnectOptions::username, PgConnectOptions::password),
        None => options,
    }
}

/// Without settings that a pooler would refuse, and without a log of statements.
fn base_options(options: PgConnectOptions) -> PgConnectOptions {
    options.extra_float_digits(None).disable_statement_logging()
}

/// The server's id, if the server is not too old, and writable: a lock on a standby would exclude nobody on the primary. The
/// first part of the id belongs to the database's files, which a standby shares. The second part is the timeline, which each
/// promotion raises.
pub(crate) async fn writable_server(conn: &mut PgConnection) -> Result<String> {
    const WRITABLE: &str = "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off', \
         current_setting('server_version')";
    const SERVER: &str = "SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) \
         FROM pg_control_system()";
    // As one message each: a pooler could give the parts of a prepared statement to different sessions.
    let row = sqlx::raw_sql(WRITABLE).fetch_one(&mut *conn).await.map_err(fault)?;
    if !row.try_get::<bool, _>(0).map_err(fault)? {
        return Err(Error::new(
            ErrorKind::NotPrimary,
            "the server is read-only: it is a standby, or default_transaction_read_only is on for the account or the database; name the \
             primary, since a lock on a standby excludes nobody there",
        ));
    }
    // The first version with generated columns, which the tables have.
    refuse_older("PostgreSQL", row.try_get(1).map_err(fault)?, "12")?;
    match sqlx::raw_sql(SERVER).fetch_one(conn).await.map_err(fault) {
        Ok(row) => row.try_get(0).map_err(fault),
        // Some operators revoke this right. Then a failover is not noticed.
        Err(error) if *error.kind() == ErrorKind::PermissionDenied => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The schema's name becomes a part of statements, so it must not need quotes.
fn schema(address: &Address) -> Result<Option<String>> {
    address.read("schema", |text| is_identifier(text).then(|| text.to_owned()))
}

fn with_tls(mut options: PgConnectOptions, tls: &Tls) -> Result<PgConnectOptions> {
    if tls.mode != TlsMode::Off && !cfg!(feature = "tls") {
        return Err(Error::new(
            ErrorKind::Unsupported { need: "the feature `postgres-tls`".into() },
            "TLS to PostgreSQL needs the feature `postgres-tls` of dlock-rs: cargo add dlock-rs --features postgres-tls",
        ));
    }
    options = options.ssl_mode(match tls.mode {
        TlsMode::Off => PgSslMode::Disable,
        TlsMode::Require => PgSslMode::Require,
        // Checks the host name too.
        _ => PgSslMode::VerifyFull,
    });
    if let Some(ca) = &tls.ca {
        options = options.ssl_root_cert_from_pem(ca.clone());
    }
    if let Some((cert, key)) = &tls.identity {
        options = options.ssl_client_cert_from_pem(cert).ssl_client_key_from_pem(key);
    }
    Ok(options)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Refuses a server that does not end silent sessions.
pub(crate) async fn refuse_endless_silence(conn: &mut PgConnection) -> Result<()> {
    let sql = "SELECT current_setting('idle_session_timeout', true) IS NOT NULL";
    if sqlx::raw_sql(sql).fetch_one(conn).await.map_err(fault)?.try_get(0).map_err(fault)? {
        return Ok(());
    }
    Err(endless_silence())
}

/// Its sessions would outlive a host that vanished.
pub(crate) fn endless_silence() -> Error {
    Error::new(
        ErrorKind::Unsupported { need: "PostgreSQL 14 or later".into() },
        "this server does not end silent sessions, so the lock of a host that vanished would be held for ever: \
         use way=lease",
    )
}

#[cfg(test)]
mod tests {
    use dlock_testkit::slips::assert_hidden;

    use super::*;

    fn parse(url: &str) -> Result<Server> {
        Server::of(&Address::parse(url, &FORM)?)
    }

    #[test]
    fn a_url_is_read() {
        let shown = |url: &str| format!("{:?}", parse(url).unwrap());
        assert_eq!(shown("postgres://ann@db.example/locks?tls=off"), "db.example:5432/locks");
        assert_eq!(shown("postgresql://ann:x@[::1]:5433/locks"), "::1:5433/locks");
        assert_eq!(shown("postgres://a:p@one,two:1/d?tls=off"), "one:5432,two:1/d");
        assert_eq!(shown("postgres://ann@/locks?socket=%2Frun"), "/run/locks");
        let server = parse("postgres://ann@h/locks?tls=off&schema=my_locks").unwrap();
        assert_eq!(server.tables.full("t"), "my_locks.t");
        assert_eq!(parse("postgres://ann@h/locks?tls=off").unwrap().tables, TableNames::default());
    }

    #[test]
    fn a_schema_that_would_need_quotes_is_refused() {
        for bad in ["My", "a b", "a;b", "1a", "", "a\"b", "a.b"] {
            let error = parse(&format!("postgres://ann@localhost/d?schema={}", bad.replace(' ', "%20"))).unwrap_err();
            assert!(error.to_string().contains("schema"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_url_without_a_host_an_account_or_a_database_is_refused() {
        for (bad, why) in [
            ("postgres://localhost/d", "account"),
            ("postgres://ann@localhost", "database"),
            ("postgres://ann@/d", "host"),
            ("postgres://ann@h/d?tls=off&sslmode=disable", "tls="),
            ("postgres://ann@h/d?tls=off&way=paxos", "lease"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn no_slip_in_a_url_shows_its_password() {
        let urls = [
            "postgres://user:{}@h:1/db?tls=off",
            "postgres://:{}@localhost/db",
            "postgresql://user:{}@/db?socket=/run",
            "postgres://user:{}@h/db?tls=verify&ca=/nowhere/{}",
        ];
        assert_hidden(&urls, parse);
    }
}
