//! Locks in one SQLite file, for the processes of one host. No server to run.
//!
//! Every request is **one statement that commits by itself**. A caller that is dropped at any point can so leave no
//! open transaction behind: the connection's thread ends the statement whole, or never begins it. Rows are read to the
//! end of the statement, since SQLite commits only there: an answer taken earlier could still be rolled back.
//!
//! A lease ends by the clock that counts suspend, which all processes of a host share; the boot id beside it says
//! whether the host has been restarted since, and with it died all holders. Elsewhere than on Linux there is no such
//! shared clock: there the wall clock decides, and setting it forward by more than a ttl can let a second holder in.
//!
//! Nothing waits for the disk while it holds the file's write lock. What a power failure may take back is what it ends
//! anyway: the boot id changes, and with it all locks are free. Only the tokens must not come again, so the counter
//! runs under a bound that *is* on the disk, raised a million at a time, and goes on from the bound after a restart.
//! Where the wall clock decides, locks outlive a restart, and every commit waits for the disk.
//!
//! A free lock has no row. Tokens rise all the same, for ever: one counter, in a row of its own, serves all locks.

mod fault;
mod file;
mod line;
mod schema;
mod time;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub(crate) use self::fault::fault;
use self::fault::primary_code;
use self::file::Place;
use self::line::{Line, Turn};
use self::time::{Stamp, Time};
use crate::backend::{Attempt, Backend, Claim, Hold, Released, Stand, Standing, Validity, Wake};
use crate::background::PerRuntime;
use crate::capabilities::{Capabilities, Durability, Expiry, Fencing, TtlRange, WakeStyle};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::key::{LockKey, MAX_KEY_BYTES};
use crate::note::Note;

/// Opens `sqlite://path`.
pub(crate) async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Sqlite::open(url, clock).await?))
}

/// Wins if the lock is free, expired, from before a restart of the host, or this owner's already; the last keeps its
/// token. A trigger raises the counter with every new grant, inside of the same statement.
const ACQUIRE: &str = "\
    INSERT INTO dlock_locks (k, owner, token, expires, boot, note) \
    VALUES (?1, ?2, (SELECT token + 1 FROM dlock_fence), ?3, ?4, ?5) \
    ON CONFLICT (k) DO UPDATE SET \
        token = CASE WHEN owner = excluded.owner THEN token ELSE excluded.token END, \
        owner = excluded.owner, expires = excluded.expires, boot = excluded.boot, note = excluded.note \
    WHERE owner = excluded.owner OR boot <> excluded.boot OR expires <= ?6 \
    RETURNING token";

const LEASE_LEFT: &str = "SELECT expires - ?2 FROM dlock_locks WHERE k = ?1 AND boot = ?3";

/// Any number of holds in one statement, hence in one commit.
const RENEW: &str = "\
    UPDATE dlock_locks SET expires = ?2 + (j.value ->> 2) FROM json_each(?1) AS j \
    WHERE k = j.value ->> 0 AND owner = unhex(j.value ->> 1) AND boot = ?3 AND expires > ?2 \
    RETURNING owner";

const RELEASE: &str = "DELETE FROM dlock_locks WHERE k = ?1 AND owner = ?2";

const HOLDER: &str = "SELECT note FROM dlock_locks WHERE k = ?1 AND boot = ?2 AND expires > ?3";

/// Locks in one SQLite file. See the [module](self).
#[derive(Debug)]
pub struct Sqlite {
    site: Arc<Site>,
    capabilities: Capabilities,
    /// A connection for each runtime: a blocked one cannot hold up the others.
    lines: PerRuntime<Arc<Line>>,
    /// Renewals have a connection of their own: no crowd of callers can stand before them.
    renewals: Line,
}

/// Which file, and by which clock.
#[derive(Debug)]
struct Site {
    place: Place,
    time: Time,
}

impl Sqlite {
    /// Opens `sqlite://relative/path` or `sqlite:///absolute/path`; creates the file, but no folder. Parts of the path
    /// may be percent-encoded. `?network=allow` lifts the refusal of network filesystems.
    ///
    /// # Errors
    /// Where the file cannot be created, read or written, lies on a network filesystem, is no database, or is
    /// somebody else's database.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        // Who sleeps on the clock needs our thread.
        crate::background::background()?;
        let site = Arc::new(Site { place: Place::parse(url)?, time: Time::of(clock)? });
        let opened = schema::prepare(&site).await?;
        let renewals = Line::new(site.clone(), Some(opened));
        Ok(Self { site, capabilities: capabilities(), lines: PerRuntime::new(), renewals })
    }

    /// The line of the runtime that we are in.
    async fn line(&self) -> Result<Arc<Line>> {
        let line = || Arc::new(Line::new(self.site.clone(), None));
        Ok(self.lines.get(|| async { Ok(line()) }).await?.value)
    }

    async fn acquire(&self, claim: &Arc<Claim>) -> Result<Attempt> {
        let line = self.line().await?;
        let mut turn = line.turn().await?;
        let now = self.site.time.now()?;
        let asked = self.ask(&mut turn, claim, now).await;
        // The counter has come to its bound.
        let rows = match asked {
            Err(error) if primary_code(&error) == Some(19) => {
                schema::reserve(turn.conn(), &self.site.time).await.map_err(|error| turn.fault(error))?;
                self.ask(&mut turn, claim, now).await
            }
            asked => asked,
        };
        let rows = rows.map_err(|error| turn.fault(error))?;
        if let Some((token,)) = rows.first() {
            let token = u64::try_from(*token).map_err(|_| schema::corrupt("a fencing token below zero"))?;
            let validity = Validity { from: now.at, granted: claim.ttl };
            return Ok(Attempt::Acquired(Hold::new(claim.clone(), token, validity)?));
        }
        let left: Vec<(i64,)> = sqlx::query_as(LEASE_LEFT)
            .bind(claim.key.as_str())
            .bind(now.stored)
            .bind(self.site.time.boot())
            .fetch_all(turn.conn())
            .await
            .map_err(|error| turn.fault(error))?;
        // No row: it was freed in between, so ask at once.
        let left = Duration::from_nanos(left.first().map_or(0, |(left,)| u64::try_from(*left).unwrap_or(0)));
        Ok(Attempt::Contended(Wake::poll().ask_by(now.at.after(left)).lease_left(left)))
    }

    async fn ask(&self, turn: &mut Turn<'_>, claim: &Claim, now: Stamp) -> sqlx::Result<Vec<(i64,)>> {
        sqlx::query_as(ACQUIRE)
            .bind(claim.key.as_str())
            .bind(&claim.owner.as_bytes()[..])
            .bind(now.stored.saturating_add(nanos(claim.ttl)))
            .bind(self.site.time.boot())
            .bind(claim.note.as_str())
            .bind(now.stored)
            .fetch_all(turn.conn())
            .await
    }

    async fn renew_all(&self, holds: &[&Hold]) -> Result<Vec<Standing>> {
        let mut turn = self.renewals.turn().await?;
        let now = self.site.time.now()?;
        let renewed: Vec<(Vec<u8>,)> = sqlx::query_as(RENEW)
            .bind(renewal_list(holds))
            .bind(now.stored)
            .bind(self.site.time.boot())
            .fetch_all(turn.conn())
            .await
            .map_err(|error| turn.fault(error))?;
        let standing = |hold: &&Hold| {
            let ours = renewed.iter().any(|(owner,)| owner == hold.claim.owner.as_bytes());
            let validity = Validity { from: now.at, granted: hold.claim.ttl };
            if ours { Standing::Renewed(validity) } else { Standing::Lost }
        };
        Ok(holds.iter().map(standing).collect())
    }

    async fn free(&self, turn: &mut Turn<'_>, claim: &Claim) -> Result<bool> {
        let done = sqlx::query(RELEASE)
            .bind(claim.key.as_str())
            .bind(&claim.owner.as_bytes()[..])
            .execute(turn.conn())
            .await
            .map_err(|error| turn.fault(error))?;
        Ok(done.rows_affected() > 0)
    }

    /// Over the line on which the attempts ran, where an acquisition may still be under way: what is sent later is
    /// done later. Should that line's runtime be blocked in the middle of a request, another line must do.
    async fn give_up(&self, claim: &Claim) -> Result<()> {
        if let Some(line) = claim.origin.and_then(|origin| self.lines.peek(origin)) {
            let patience = self.site.time.clock().now().after(schema::BUSY * 2);
            if let Some(turn) = self.site.time.clock().timeout_at(patience, line.value.turn()).await {
                return self.free(&mut turn?, claim).await.map(drop);
            }
        }
        let mut turn = self.renewals.turn().await?;
        self.free(&mut turn, claim).await.map(drop)
    }
}

impl Backend for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, _: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.acquire(claim))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            match self.renew_all(holds).await {
                Ok(standings) => standings.into_iter().map(Ok).collect(),
                Err(error) => holds.iter().map(|_| Err(unknown(&error))).collect(),
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let line = self.line().await?;
            let freed = self.free(&mut line.turn().await?, &hold.claim).await?;
            Ok(if freed { Released::Released } else { Released::NotOwner })
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.give_up(claim))
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        Box::pin(async move {
            let line = self.line().await?;
            let mut turn = line.turn().await?;
            let now = self.site.time.now()?;
            let notes: Vec<(String,)> = sqlx::query_as(HOLDER)
                .bind(key.as_str())
                .bind(self.site.time.boot())
                .bind(now.stored)
                .fetch_all(turn.conn())
                .await
                .map_err(|error| turn.fault(error))?;
            Ok(notes.first().map(|(note,)| Note::from_stored(note)))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.lines.clear();
            self.renewals.close().await;
        })
    }
}

/// What the file can do. Asking costs microseconds, so the polls are short; nothing is pushed.
fn capabilities() -> Capabilities {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    Capabilities {
        expiry: Expiry::Lease,
        ttl: TtlRange { min: Duration::from_millis(10), max: TEN_YEARS, step: Duration::from_millis(1) },
        expires_alone: true,
        fencing: Fencing::Monotonic,
        fair: false,
        read_write: false,
        permits: false,
        min_hold: false,
        once_per: false,
        wake: WakeStyle::Poll { from: Duration::from_millis(2), to: Duration::from_millis(50) },
        connection_per_hold: false,
        takeover_delay: Duration::from_millis(20),
        durability: Durability::Node,
        max_key_bytes: MAX_KEY_BYTES,
    }
}

/// One failed request is the same news for every hold in it.
fn unknown(error: &Error) -> Error {
    Error::new(error.kind().clone(), "the request that would have renewed this lock failed")
        .with_retryable(error.is_retryable())
        .because(error.to_string())
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// `[[key, owner in hex, ttl in nanoseconds], …]`. Keys are printable ASCII: two characters need an escape.
fn renewal_list(holds: &[&Hold]) -> String {
    let mut list = String::from("[");
    for hold in holds {
        let separator = if list.len() > 1 { "," } else { "" };
        let key = hold.claim.key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
        let (owner, ttl) = (hold.claim.owner.to_hex(), nanos(hold.claim.ttl));
        // Writing into a string cannot fail.
        let _ = write!(list, "{separator}[\"{key}\",\"{owner}\",{ttl}]");
    }
    list.push(']');
    list
}
