//! The servers and the account of a URL, and how a session is opened.

use std::fmt;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use dlock_store::{Address, Clock, Names, OptionRow, Secret, Tls, TlsMode, UrlBody, UrlForm};
use futures::future::join_all;
use tokio::net::TcpStream;
use zookeeper_client::{Acls, Client, Connector, Error as ClientError, SessionInfo};

use crate::queue::Layout;
use crate::server::fault::FIRST_CONTACT;

const DEFAULT_PORT: u16 = 2181;
/// A connection that has not answered for this time is given up. If two fifths of the session timeout are less, they count.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long one host may take to say whether it knows a session.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the hosts may take to say why there is no session. A resolver that is slow takes seconds for an unknown name.
const REASON_TIMEOUT: Duration = Duration::from_secs(4);
/// The timeout of that session.
const PROBE_SESSION: Duration = Duration::from_secs(20);
const SHORTEST_TICK: Duration = Duration::from_millis(2);
const LONGEST_TICK: Duration = Duration::from_secs(60);
/// The length of the host list that the client library gets; it repeats the hosts. The library tries the whole list in random
/// order, and doubles its pause each time it reaches the end of the list. With a shorter list, a client that was cut off would
/// be back too late to keep its sessions.
const HOST_LIST_LENGTH: usize = 20;

/// `zk://[user:password@]host[:port][,host[:port]…][/chroot]`.
pub(crate) const FORM: UrlForm = UrlForm::new(
    "a ZooKeeper URL",
    "zk://[user:password@]host[:port][,host[:port]…][/chroot]",
    &["zk"],
    UrlBody::HostsAfterLastAt,
)
.port(|_| DEFAULT_PORT)
.options(&[
    OptionRow::one_of("keys", &["dlock", "literal"]),
    OptionRow::one_of("layout", &["curator", "kazoo"]),
    OptionRow::one_of("auth", &["digest", "sasl"]),
    OptionRow::one_of("acl", &["creator", "open"]),
    OptionRow::new("tick", "the `tickTime` of the servers, from 2ms to 1min, such as 4s"),
    OptionRow::one_of("tls", &["verify", "off"]),
    OptionRow::CA,
    OptionRow::CERT,
    OptionRow::KEY,
])
.elsewhere(&[("ssl", "write tls=verify, and ca, cert and key, instead of the properties of the Java client")]);

/// The servers and the account. `Debug` does not show the account.
pub(crate) struct Cluster {
    /// The hosts as a URL has them.
    hosts: String,
    /// The hosts, repeated, as the client library tries them.
    host_list: String,
    user: Option<(String, Secret)>,
    /// Whether the servers authenticate the account (SASL). Otherwise it is a digest that the client sends.
    sasl: bool,
    tls: Option<Tls>,
    /// The chroot, without a slash at its end; empty for the root.
    pub(crate) root: String,
    pub(crate) layout: Layout,
    /// Whether the locks have the names that foreign clients write.
    pub(crate) literal: bool,
    /// Whether only the account that made a node has rights to it.
    pub(crate) creator: bool,
    /// The tick of the servers, for those that do not tell it.
    pub(crate) tick: Option<Duration>,
}

impl Cluster {
    pub(crate) fn of(address: &Address) -> Result<Self> {
        if address.hosts().is_empty() {
            return Err(address.wrong("it must name at least one host"));
        }
        let user = match (address.user(), address.password()) {
            (None, None) => None,
            (Some(user), Some(password)) if !user.contains(':') => Some((user.to_owned(), password.clone())),
            (Some(user), Some(_)) if user.contains(':') => {
                return Err(address.wrong("a user's name must not contain a colon"));
            }
            _ => return Err(address.wrong("an account must have a user and a password")),
        };
        let bad = |part: &String| part.is_empty() || part == "." || part == ".." || !part.chars().all(is_plain);
        if address.path().iter().any(bad) || address.path().first().is_some_and(|first| first == "zookeeper") {
            return Err(address
                .wrong("each part of the chroot must be the name of a node, and the first must not be `zookeeper`"));
        }
        let bracketed = |name: &str| if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        let hosts = address.hosts().iter().map(|host| host.or_port(DEFAULT_PORT));
        let hosts: Vec<_> = hosts.map(|(name, port)| format!("{}:{port}", bracketed(&name))).collect();
        // Without an account a rogue server could steal nothing, so TLS is used only if the URL asks for it.
        let asks = user.is_some() || ["tls", "ca", "cert", "key"].iter().any(|name| address.option(name).is_some());
        let tls =
            if asks { Some(Tls::by_option(address, false)?).filter(|tls| tls.mode != TlsMode::Off) } else { None };
        let has_identity = user.is_some() || tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        if address.option("auth").is_some() && user.is_none() {
            return Err(Error::config("auth", "auth needs an account: write user:password before the host"));
        }
        let creator = match address.option("acl") {
            Some("creator") if !has_identity => {
                return Err(Error::config("acl", "acl=creator needs an account, or a certificate of the client"));
            }
            Some(acl) => acl == "creator",
            None => has_identity,
        };
        let repeated = vec![hosts.join(","); HOST_LIST_LENGTH.div_ceil(hosts.len())];
        let cluster = Self {
            hosts: hosts.join(","),
            host_list: repeated.join(","),
            sasl: address.option("auth") == Some("sasl"),
            user,
            tls,
            root: address.path().iter().map(|part| format!("/{part}")).collect(),
            layout: if address.option("layout") == Some("kazoo") { Layout::Kazoo } else { Layout::Curator },
            literal: address.option("keys") == Some("literal"),
            creator,
            tick: address.read("tick", read_tick)?,
        };
        #[cfg(feature = "tls")]
        if cluster.tls.is_some() {
            // With such a name the client library would panic.
            let named = |host: &dlock_store::Host| rustls::pki_types::ServerName::try_from(host.name.as_str()).is_ok();
            if !address.hosts().iter().all(named) {
                return Err(Error::config(
                    "url",
                    "a host of the ZooKeeper URL is not a name that a certificate can have",
                ));
            }
        }
        // Check the files and features that TLS and SASL need now, and not at the first lock. A file that is not read is checked
        // when the store is opened.
        if address.reads_files() || cluster.tls.as_ref().is_none_or(|tls| tls.ca.is_none()) {
            cluster.connector(CONNECTION_TIMEOUT)?;
        }
        Ok(cluster)
    }

    /// The hosts and ports.
    pub(crate) fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Opens a session with this timeout, on the first server that answers.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<Client, ConnectError> {
        let connector = self.connector(timeout).map_err(ConnectError::Wrong)?;
        self.connect_to(connector, &self.host_list).await.map_err(ConnectError::Failed)
    }

    /// Whether the URL names more than one host.
    pub(crate) fn has_several_hosts(&self) -> bool {
        self.hosts.contains(',')
    }

    /// Refuses hosts of two ensembles: all servers of an ensemble know each other's sessions. Returns the hosts that did not
    /// answer, which are not checked.
    pub(crate) async fn check_ensemble(&self, clock: &Clock) -> Result<Vec<&str>> {
        let hosts: Vec<_> = self.hosts.split(',').collect();
        let mut last: Option<(SessionInfo, BootInstant, &str)> = None;
        let mut silent = Vec::new();
        for (at, host) in hosts.iter().enumerate().filter(|_| hosts.len() > 1) {
            let mut connector = self.connector(PROBE_SESSION)?;
            if let Some((session, ..)) = &last {
                connector = connector.with_session(session.clone());
            }
            // The last host closes the session.
            if at + 1 < hosts.len() {
                connector = connector.with_detached();
            }
            let began = clock.now();
            match clock.timeout_at(began.after(CHECK_TIMEOUT), self.connect_to(connector, host)).await {
                Some(Ok(client)) => {
                    // For less than this time the servers keep it for certain.
                    let ends = began.after(client.session_timeout() / 2);
                    last = Some((client.into_session(), ends, host));
                }
                Some(Err(ClientError::SessionExpired)) => match &last {
                    Some((_, ends, other)) if clock.now() < *ends => {
                        let text = format!(
                            "the hosts are servers of two ensembles, which would grant each lock twice: {host} does not \
                             know a session of {other}"
                        );
                        return Err(Error::config("url", text));
                    }
                    _ => silent.push(*host),
                },
                Some(Err(_)) | None => silent.push(*host),
            }
        }
        Ok(silent)
    }

    /// Adds the cause to the error of an opening without a session. The client library does not report it, so this
    /// connects to the hosts.
    pub(crate) async fn explain(&self, error: Error, clock: &Clock) -> Error {
        if *error.kind() != ErrorKind::Outage {
            return error.advise(&FIRST_CONTACT);
        }
        let names = Names::default();
        let hosts = self.hosts.split(',').filter_map(|host| host.rsplit_once(':'));
        let reached = hosts.map(|(name, port)| async {
            let connect = async |address| {
                let connected = TcpStream::connect(address).await;
                connected.map_err(|error| {
                    Error::outage(format!("{}; check the host and the port, and whether ZooKeeper runs", error.kind()))
                })
            };
            let (name, port) = (name.trim_matches(['[', ']']), port.parse().unwrap_or(DEFAULT_PORT));
            names.connect("the ZooKeeper server", (name, port), connect).await.map(drop)
        });
        let by = clock.now().after(REASON_TIMEOUT);
        let reached = clock.timeout_at(by, join_all(reached)).await;
        // A host that accepts connections and gives no session says more than one that is down.
        let reached = reached.filter(|hosts| hosts.iter().all(Result::is_err));
        let why = reached.and_then(|hosts| hosts.into_iter().find_map(Result::err));
        let advice = why.as_ref().map_or(
            "check the host and the firewall, that the port is ZooKeeper's, and whether it speaks TLS (tls=verify) or not (tls=off)",
            Error::message,
        );
        error.advise(&[FIRST_CONTACT[2], ("", advice)])
    }

    async fn connect_to(&self, connector: Connector, hosts: &str) -> Result<Client, ClientError> {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return connector.secure_connect(hosts).await;
        }
        connector.connect(hosts).await
    }

    /// Why the servers give no session, if TLS with them fails.
    #[cfg(feature = "tls")]
    pub(crate) async fn tls_failure(&self) -> Option<Error> {
        super::handshake::failure(&self.hosts, self.tls.as_ref()?).await
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) async fn tls_failure(&self) -> Option<Error> {
        None
    }

    /// The hosts that accept four-letter words in clear text. With TLS there is none.
    pub(crate) fn plain_text_hosts(&self) -> &str {
        if self.tls.is_some() { "" } else { &self.hosts }
    }

    fn connector(&self, timeout: Duration) -> Result<Connector> {
        let connector = Client::connector()
            .with_session_timeout(timeout)
            .with_connection_timeout(CONNECTION_TIMEOUT.min(timeout * 2 / 5))
            .with_fail_eagerly();
        let connector = match &self.user {
            Some((user, password)) if self.sasl => with_sasl(connector, user, password)?,
            Some((user, password)) => connector.with_auth("digest", format!("{user}:{}", password.reveal()).as_bytes()),
            None => connector,
        };
        match &self.tls {
            Some(tls) => with_tls(connector, tls),
            None => Ok(connector),
        }
    }

    /// The access rights of dlock's nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.creator { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("hosts", &self.hosts).field("root", &self.root).finish_non_exhaustive()
    }
}

/// Why no session was opened.
pub(crate) enum ConnectError {
    /// The settings are wrong.
    Wrong(Error),
    /// The servers failed or refused.
    Failed(ClientError),
}

fn read_tick(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|tick| (SHORTEST_TICK..=LONGEST_TICK).contains(tick))
}

/// Whether the name of a node may have this character.
pub(crate) fn is_plain(c: char) -> bool {
    !matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff) && c != '/'
}

#[cfg(not(feature = "sasl"))]
fn with_sasl(_: Connector, _: &str, _: &Secret) -> Result<Connector> {
    Err(Error::new(
        dlock_contract::ErrorKind::Unsupported { need: "the feature `zookeeper-sasl`".into() },
        "auth=sasl needs the feature `zookeeper-sasl` of dlock-rs: cargo add dlock-rs --features zookeeper-sasl",
    ))
}

#[cfg(feature = "sasl")]
fn with_sasl(connector: Connector, user: &str, password: &Secret) -> Result<Connector> {
    let account = zookeeper_client::SaslOptions::digest_md5(user.to_owned(), password.reveal().to_owned());
    Ok(connector.with_sasl(account))
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: Connector, _: &Tls) -> Result<Connector> {
    Err(Error::new(
        dlock_contract::ErrorKind::Unsupported { need: "the feature `zookeeper-tls`".into() },
        "TLS to ZooKeeper needs the feature `zookeeper-tls` of dlock-rs: cargo add dlock-rs --features zookeeper-tls",
    ))
}

#[cfg(feature = "tls")]
fn with_tls(connector: Connector, tls: &Tls) -> Result<Connector> {
    use zookeeper_client::TlsOptions;

    // The client library uses the process's TLS provider, and panics if there are two and none was chosen. If another part
    // of the program has chosen one, this changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wrong = |field: &'static str| move |_| Error::config(field, "the file has no usable certificate");
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let ca = tls.ca.as_deref().ok_or_else(|| {
        Error::config("ca", "tls=verify needs the authority that signs the servers' certificates: add ca=/path/ca.pem")
    })?;
    let mut options = TlsOptions::new().with_pem_ca(&text(ca)).map_err(wrong("ca"))?;
    if let Some((cert, key)) = &tls.identity {
        options = options.with_pem_identity(&text(cert), &text(key)).map_err(wrong("cert"))?;
    }
    Ok(connector.with_tls(options))
}
