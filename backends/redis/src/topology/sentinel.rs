//! Sentinel: a majority of the sentinels names the primary.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{IntoConnectionInfo, RedisConnectionInfo, Value};
use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{Clock, Names, Secret};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;

use crate::reply::fault;
use crate::reply::read::{settings, text};
use crate::scripts::call::words;
use crate::socket::options::{config, redis_settings, tcp, tcp_address};
use crate::socket::server::Server;
use crate::socket::tls::Tls;

/// The time limit for the sentinels, which are all asked at once.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The time limit for comparing the sentinels. Answers that come later are not compared.
const COMPARE_LIMIT: Duration = Duration::from_millis(500);

/// The port of a sentinel.
const DEFAULT_PORT: u16 = 26379;

/// The address of a server.
pub(crate) type Address = (String, u16);

/// The sentinels of one primary, and how to connect to whichever server that is.
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<Server>,
    pub(crate) name: String,
    /// The hosts and ports of the sentinels.
    shown: String,
    settings: RedisConnectionInfo,
    tls: Option<Tls>,
    names: Arc<Names>,
}

impl Sentinels {
    /// `host[:port],…/name[/db]`.
    pub(crate) fn new(url: &dlock_store::Address, tls: Option<Tls>, names: &Arc<Names>) -> Result<Self> {
        let (name, db) = match url.path() {
            // The `?` was forgotten. The name is shown in errors, and it may contain a password.
            [name, ..] if name.contains('=') => return Err(url.wrong("options come after a `?`")),
            [name] => (name, 0),
            [name, db] => (name, db.parse().map_err(|_| url.wrong("the database is a number"))?),
            _ => {
                return Err(url.wrong("after the sentinels comes the name of the primary"));
            }
        };
        let of_sentinels = redis_settings(url.option("sentinel_user"), url.option("sentinel_password"), 0);
        let of_servers = redis_settings(url.user(), url.password().map(Secret::reveal), db);
        let hosts: Vec<_> = url.hosts().iter().map(|host| host.or_port(DEFAULT_PORT)).collect();
        let shown: Vec<_> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let sentinels = hosts.into_iter().map(|host| server(host, tls.as_ref(), names, of_sentinels.clone()));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_>>()?,
            name: name.clone(),
            shown: shown.join(", "),
            settings: of_servers,
            tls,
            names: names.clone(),
        })
    }

    /// The primary, by a majority of all sentinels that the URL names.
    pub(crate) async fn primary(&self, clock: &Clock) -> Result<Address> {
        let limit = clock.now().after(ASK_LIMIT);
        let ask = |sentinel| async move {
            let answer = clock.timeout_at(limit, self.ask(sentinel)).await;
            answer.unwrap_or_else(|| Err(Error::outage("a sentinel did not answer")))
        };
        let mut answers: FuturesUnordered<_> = self.sentinels.iter().map(ask).collect();
        let majority = self.sentinels.len() / 2 + 1;
        let (mut told, mut unknown, mut refused) = (Vec::<(Address, usize)>::new(), 0, None);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Some(address)) => {
                    let before = told.iter().position(|(known, _)| *known == address);
                    let at = before.unwrap_or(told.len());
                    if before.is_none() {
                        told.push((address, 0));
                    }
                    told[at].1 += 1;
                    if told[at].1 >= majority {
                        return Ok(told.swap_remove(at).0);
                    }
                }
                Ok(None) => unknown += 1,
                Err(error) if *error.kind() != ErrorKind::Outage => refused = Some(error),
                Err(_) => {}
            }
        }
        if unknown >= majority {
            return Err(Error::config("url", "the sentinels watch no primary with the name in the URL"));
        }
        let silent = refused.is_none();
        Err(refused.filter(|_| told.is_empty()).unwrap_or_else(|| {
            let answered: usize = told.iter().map(|(_, votes)| votes).sum();
            Error::outage(format!(
                "no majority of the {} sentinels names the same primary: {answered} named one{}",
                self.sentinels.len(),
                if silent { "" } else { ", and one refused this client" }
            ))
        }))
    }

    /// The server at that address, with the servers' credentials.
    pub(crate) fn server(&self, address: Address) -> Result<Server> {
        server(address, self.tls.as_ref(), &self.names, self.settings.clone())
    }

    pub(crate) fn db(&self) -> i64 {
        self.settings.db()
    }

    async fn ask(&self, sentinel: &Server) -> Result<Option<Address>> {
        let mut wire = sentinel.open(config()).await?;
        let question = words(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name]);
        address(&wire.client.send_packed_command(&question).await.map_err(|error| wire.fault(&error))?)
    }

    /// Compares the sentinels with each other: what is wrong with those that do not name the primary of the majority.
    ///
    /// # Errors
    /// If one belongs to another group. A program whose URL names more sentinels of that group would lock elsewhere.
    pub(crate) async fn compare(&self, clock: &Clock) -> Result<Vec<String>> {
        let limit = clock.now().after(COMPARE_LIMIT);
        let view = |sentinel| async move { clock.timeout_at(limit, self.view(sentinel)).await?.ok() };
        let views = join_all(self.sentinels.iter().map(view)).await;
        let of_majority = |view: &View| {
            let same = views.iter().flatten().filter(|other| other.primary == view.primary);
            view.primary.is_some() && same.count() > self.sentinels.len() / 2
        };
        let ids: Vec<_> =
            views.iter().flatten().filter(|view| of_majority(view)).filter_map(|view| view.id.as_ref()).collect();
        let mut findings = Vec::new();
        for (sentinel, view) in self.sentinels.iter().zip(&views) {
            let Some(view) = view.as_ref().filter(|view| !of_majority(view)) else { continue };
            let at = sentinel.info().addr();
            match (&view.primary, &view.knows) {
                (None, _) => findings.push(format!("the sentinel at {at} watches no primary with the name in the URL")),
                // A sentinel of this group that has missed a failover still knows the other sentinels. That is only a finding.
                (Some(_), Some(knows)) if !ids.is_empty() && !ids.iter().any(|id| knows.contains(id)) => {
                    return Err(Error::config(
                        "url",
                        format!(
                            "the sentinel at {at} belongs to another group: it names another primary than the majority \
                             and does not know the other sentinels. Take it out of the URL"
                        ),
                    ));
                }
                (Some(_), _) => findings.push(format!("the sentinel at {at} names another primary than the majority")),
            }
        }
        Ok(findings)
    }

    async fn view(&self, sentinel: &Server) -> Result<View> {
        let mut wire = sentinel.open(config()).await?;
        let mut questions = ::redis::pipe();
        questions.add_command(words(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name]));
        questions.add_command(words(&["SENTINEL", "MYID"]));
        questions.add_command(words(&["SENTINEL", "SENTINELS", &self.name]));
        let answers = wire.client.send_packed_commands(&questions, 0, questions.len()).await;
        let answers = answers.map_err(|error| wire.fault(&error))?;
        let [primary, id, others] = &answers[..] else { return Err(fault::unexpected(&Value::Nil)) };
        // An account may be without the last two.
        let id_of = |other: &Value| {
            settings(other)?.into_iter().find_map(|(name, value)| (name == "runid").then(|| value.to_owned()))
        };
        let knows =
            if let Value::Array(others) = others { Some(others.iter().filter_map(id_of).collect()) } else { None };
        Ok(View { primary: address(primary)?, id: text(id).map(str::to_owned), knows })
    }
}

/// The group of a sentinel, as the sentinel reports it.
struct View {
    primary: Option<Address>,
    /// Its own id.
    id: Option<String>,
    /// The ids of the other sentinels that it knows.
    knows: Option<Vec<String>>,
}

/// The address of the primary; `None` if the sentinel does not know its name.
fn address(answer: &Value) -> Result<Option<Address>> {
    match answer {
        Value::Nil => Ok(None),
        Value::Array(parts) if let [host, port] = &parts[..] => {
            let address = text(host).map(str::to_owned).zip(text(port).and_then(|port| port.parse().ok()));
            address.map(Some).ok_or_else(|| fault::unexpected(&Value::Nil))
        }
        other => Err(fault::unexpected(other)),
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.name, self.shown)
    }
}

fn server(
    (host, port): Address,
    tls: Option<&Tls>,
    names: &Arc<Names>,
    settings: RedisConnectionInfo,
) -> Result<Server> {
    let address = tcp_address(host, port, tls.is_some());
    let info = address.into_connection_info().map_err(|_| Error::config("url", "the Redis URL cannot be used"))?;
    Ok(Server::new(info.set_redis_settings(settings).set_tcp_settings(tcp()), tls.cloned(), names))
}
