//! The store, and how it is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Durability, Error, Fencing, Profile, Result, TtlRange, WakeStyle};
use dlock_store::{Address, Clock, Opener, Streaks, background, detached};

use crate::lock::shared::Shared;
use crate::probe;
use crate::server::environment;
use crate::server::http::{Http, REQUEST_TIMEOUT};
use crate::server::settings::{FORM, Settings};

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| Box::pin(open(address, clock)))
    .checked_by(|address| Settings::of(address, of_process_without_files).map(drop));

/// The files may come later than the program.
fn of_process_without_files(name: &str) -> Option<String> {
    let is_file = ["FILE", "CERT", "KEY", "PATH"].iter().any(|end| name.ends_with(end));
    environment::of_process(name).filter(|_| !is_file)
}

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Consul::open_at(&address, clock).await?))
}

/// The longest ttl of a session.
const LONGEST_TTL: Duration = Duration::from_secs(86_400);

/// Locks in Consul.
pub struct Consul {
    pub(crate) shared: Arc<Shared>,
    pub(crate) profile: Profile,
}

/// Advice for errors of an opening, by words of the agent.
const FIRST_CONTACT: [(&str, &str); 10] = [
    // Only without a token.
    ("Permission denied", "the URL has no token: write consul://:TOKEN@host"),
    ("connection refused", "check the host and the port, and whether the agent runs"),
    ("HTTP request to an HTTPS server", "write tls=verify"),
    ("certificate", "check that `ca` has the authority that signs the agent's certificate"),
    ("handshake", "check whether the port speaks TLS (tls=verify) or not (tls=off)"),
    ("ACL not found", "check the token: Consul does not know it"),
    ("No path to datacenter", "check `dc`"),
    ("refused a request (400)", CHECK),
    ("the connection to Consul broke", CHECK),
    ("did not answer", CHECK),
];

const CHECK: &str = "check the host, that the port is that of Consul's HTTP API, and whether it speaks TLS (tls=verify) or not (tls=off)";

impl Consul {
    /// Opens `consul://[:token@]host[:port][?option=value&…]`. Settings that the URL does not have come from the environment
    /// variables of Consul's own tools, such as `CONSUL_HTTP_TOKEN`.
    ///
    /// # Errors
    /// A URL, a variable or a file that cannot be read (the error never repeats it); an agent that does not answer within five
    /// seconds, or has no leader; a token that is refused or lacks rights.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        let (address, time) = (address.clone(), clock.clone());
        // This reads files, and a disk may hang. A store that is opened at its first use is opened on our thread.
        let connecting = move || Http::new(Settings::of(&address, environment::of_process)?, &time);
        let http = Arc::new(background()?.run_blocking(connecting).await??);
        let (asked, time) = (http.clone(), clock.clone());
        let found = detached(async move {
            let end = time.now().after(REQUEST_TIMEOUT);
            let found = time.timeout_at(end, probe::open(&asked)).await;
            found.unwrap_or_else(|| Err(Error::outage(format!("Consul did not answer within {REQUEST_TIMEOUT:?}"))))
        });
        let has_token = http.settings().token.header().is_some();
        let found = found.await.map_err(|error| error.advise(&FIRST_CONTACT[usize::from(has_token)..]));
        let profile = profile(found?, http.settings())?;
        Ok(Self { shared: Arc::new(Shared::new(http)), profile })
    }
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { host, port, .. } = self.shared.http.settings();
        f.debug_struct("Consul").field("host", host).field("port", port).finish_non_exhaustive()
    }
}

fn profile(shortest: Duration, settings: &Settings) -> Result<Profile> {
    // A check may end the session of a holder that cannot hear of it. So the holder stops by itself before the
    // lock-delay ends.
    let longest = if settings.checks.is_empty() { LONGEST_TTL } else { settings.lock_delay };
    if longest < shortest {
        let text = format!("with `checks` it must be at least the servers' shortest ttl, {shortest:?}");
        return Err(Error::config("lock_delay", text));
    }
    let ttl = TtlRange::new(shortest, longest).in_steps_of(Duration::from_millis(1));
    Ok(Profile::new("consul", ttl).with(|consul| {
        consul.fencing = Fencing::Monotonic;
        consul.permits = true;
        consul.wake = WakeStyle::Hint;
        // The servers wait for twice the ttl. Then nobody gets the lock during the lock-delay.
        consul.silent_ttls = 2;
        consul.takeover_delay = settings.lock_delay + Duration::from_secs(1);
        consul.durability = Durability::Consensus;
        consul.any_key = !settings.literal;
        consul.holds_in_a_row = (!settings.literal).then_some(Streaks::SHARE);
    }))
}
