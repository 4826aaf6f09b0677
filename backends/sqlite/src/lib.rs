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
//!
//! A lock with one holder, by far the most frequent, is one row of one table. What several hold (`shares`), what
//! starts once in a period (`runs`) and what stays taken after its end go by the same row: triggers put it there and
//! take it away, so that each of them is still one statement, and each sees the others. Only starts of periods wait
//! for the disk, since they count beyond a restart of the host.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod asked;
mod exclusive;
mod fault;
pub mod fenced;
mod file;
mod filesystem;
mod line;
mod look;
mod renewals;
mod runs;
mod schema;
mod shares;
mod sweep;
mod tables;
mod time;

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::{self, background, here};
use dlock_contract::{
    Attempt, Backend, Capabilities, Claim, Clock, Durability, Ending, Expiry, Fencing, Hold, LastSuccess, LockKey,
    MAX_KEY_BYTES, Mode, Note, Opener, PerRuntime, Released, Result, RunEnd, Stand, Standing, TtlRange, WakeStyle,
};
use futures::future::BoxFuture;

use self::asked::{Asked, ask, nanos};
pub(crate) use self::fault::fault;
use self::fault::is_bound_reached;
use self::file::{Identity, Place};
use self::line::{Connected, Line};
use self::look::Looks;
use self::time::Time;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&["sqlite"], |url, clock| Box::pin(open(url, clock)));

/// Opens `sqlite://path`.
async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Sqlite::open(url, clock).await?))
}

/// Of several, the one that came first.
const HOLDER: &str = "\
    SELECT coalesce( \
        (SELECT note FROM dlock_shares WHERE k = ?1 AND boot = ?2 AND expires > ?3 ORDER BY token LIMIT 1), note) \
    FROM dlock_locks WHERE k = ?1 AND boot = ?2 AND expires > ?3";

/// Locks in one SQLite file. See the [module](self).
#[derive(Debug)]
pub struct Sqlite {
    site: Arc<Site>,
    capabilities: Capabilities,
    /// A connection for each runtime: a blocked one cannot hold up the others.
    lines: PerRuntime<Arc<Line>>,
    /// Renewals have a connection of their own, driven by our thread: no crowd of callers can stand before them.
    renewals: Line,
}

/// Which file, and by which clock.
#[derive(Debug)]
struct Site {
    place: Arc<Place>,
    looks: Looks<Identity>,
    time: Time,
}

impl Site {
    fn new(place: Place, time: Time) -> Self {
        let place = Arc::new(place);
        let looked_at = place.clone();
        Self { place, looks: Looks::new(move || looked_at.look()), time }
    }
}

impl Sqlite {
    /// Opens `sqlite://relative/path` or `sqlite:///absolute/path`; creates the file, but no folder. Parts of the path
    /// may be percent-encoded. `?network=allow` lifts the refusal of filesystems that are not known to be local,
    /// `?shared=allow` that of files which others own or may write.
    ///
    /// # Errors
    /// Where the file cannot be created, read or written, lies on a filesystem that is not known to be local, belongs
    /// to somebody else or may be written by others, is no database, or is somebody else's database.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        // Who sleeps on the clock needs our thread.
        let background = background()?;
        let site = Arc::new(Site::new(Place::parse(url)?, Time::of(clock)?));
        let opened = schema::prepare(&site).await?;
        let renewals = Line::of_renewals(site.clone(), opened);
        background.spawn(renewals.task());
        Ok(Self { site, capabilities: capabilities(), lines: PerRuntime::new(), renewals })
    }

    /// The line of the runtime that we are in.
    async fn line(&self) -> Result<Arc<Line>> {
        let site = self.site.clone();
        let open = || async move {
            let line = Line::new(site);
            engine::Place::here()?.spawn(line.task());
            Ok(Arc::new(line))
        };
        Ok(self.lines.get(open).await?.value)
    }

    /// Runs a request for this claim on the line of the runtime that we are in.
    async fn run<T, R>(&self, claim: &Arc<Claim>, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut Connected, &'a Site, &'a Arc<Claim>) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (line, site, claim) = (self.line().await?, self.site.clone(), claim.clone());
        line.run(move |turn| Box::pin(async move { request(turn, &site, &claim).await })).await
    }

    async fn renew_all(&self, holds: &[&Hold]) -> Result<Vec<Standing>> {
        let site = self.site.clone();
        let claims: Vec<_> = holds.iter().map(|hold| hold.claim.clone()).collect();
        self.renewals.run(move |turn| Box::pin(async move { renewals::renew(turn, &site.time, &claims).await })).await
    }

    /// Over the line on which the attempts ran, where an acquisition may still be under way: what is sent later is
    /// done later.
    async fn abandon_claim(&self, claim: &Arc<Claim>) -> Result<()> {
        let (site, given_up) = (self.site.clone(), claim.clone());
        let line = claim.origin.and_then(|origin| self.lines.peek(origin));
        let line = line.as_ref().map_or(&self.renewals, |line| &line.value);
        line.run_from_elsewhere(move |turn| Box::pin(async move { give_up(turn, &site, &given_up).await })).await
    }

    /// A read commits nothing, so nobody looks there whether the file is still the one at the path.
    async fn read<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut Connected, &'a Site) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (line, site) = (self.line().await?, self.site.clone());
        let file = site.looks.look().await?;
        line.run(move |turn| {
            Box::pin(async move {
                turn.expect_file(file)?;
                request(turn, &site).await
            })
        })
        .await
    }
}

async fn acquire(turn: &mut Connected, site: &Site, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
    let time = &site.time;
    let asked = Asked::new(claim, time)?;
    let answer = match ask(turn.conn(), &asked, time).await {
        Err(error) if is_bound_reached(&error) => {
            schema::reserve(turn.conn(), time).await.map_err(|error| turn.fault(error))?;
            ask(turn.conn(), &asked, time).await
        }
        answer => answer,
    };
    if let Some(granted) = answer.map_err(|error| turn.fault(error))? {
        return asked.acquired(granted);
    }
    match (claim.mode, claim.once_per.as_deref()) {
        (Mode::Exclusive, None) => exclusive::refused(turn, &asked).await,
        (Mode::Exclusive, Some(once)) => runs::refused(turn, &asked, *once).await,
        _ => shares::refused(turn, &asked, stand).await,
    }
}

async fn free(turn: &mut Connected, site: &Site, claim: &Claim) -> Result<bool> {
    match claim.mode {
        Mode::Exclusive => exclusive::free(turn, claim).await,
        _ => shares::free(turn, claim, site.time.boot(), site.time.now()?).await,
    }
}

async fn finish(turn: &mut Connected, site: &Site, claim: &Claim, ending: Ending) -> Result<bool> {
    let time = &site.time;
    let now = time.now()?;
    let keep = ending.keep.map(|keep| now.stored.saturating_add(nanos(keep)));
    let alone = claim.mode == Mode::Exclusive;
    if let (Some(RunEnd::Succeeded { took }), None, true) = (ending.run, claim.once_per.as_deref(), alone) {
        runs::record(turn, time, claim, took).await?;
    }
    match (ending.run.filter(|_| claim.once_per.is_some()), keep) {
        (None, None) => free(turn, site, claim).await,
        (Some(run), keep) => runs::end(turn, time, claim, run, keep).await,
        (None, Some(until)) if alone => exclusive::keep(turn, claim, until).await,
        (None, Some(until)) => shares::keep(turn, claim, time.boot(), now, until).await,
    }
}

async fn give_up(turn: &mut Connected, site: &Site, claim: &Claim) -> Result<()> {
    if claim.mode == Mode::Write {
        shares::wait_no_more(turn, claim).await?;
    }
    if let Some(once) = claim.once_per.as_deref() {
        runs::give_back(turn, claim, *once).await?;
    }
    free(turn, site, claim).await.map(drop)
}

async fn holder(turn: &mut Connected, site: &Site, key: &LockKey) -> Result<Option<Note>> {
    let now = site.time.now()?;
    let notes: Vec<(String,)> = sqlx::query_as(HOLDER)
        .bind(key.as_str())
        .bind(site.time.boot())
        .bind(now.stored)
        .fetch_all(turn.conn())
        .await
        .map_err(|error| turn.fault(error))?;
    Ok(notes.first().map(|(note,)| Note::from_stored(note)))
}

impl Backend for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.run(claim, move |turn, site, claim| Box::pin(acquire(turn, site, claim, stand))))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            match self.renew_all(holds).await {
                Ok(standings) => standings.into_iter().map(Ok).collect(),
                Err(error) => holds.iter().map(|_| Err(renewals::unknown(&error))).collect(),
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let freed = self.run(&hold.claim, |turn, site, claim| Box::pin(free(turn, site, claim))).await?;
            Ok(released(freed))
        })
    }

    fn end<'a>(&'a self, hold: &'a Hold, ending: &'a Ending) -> BoxFuture<'a, Result<Released>> {
        let ending = *ending;
        Box::pin(async move {
            let ended =
                self.run(&hold.claim, move |turn, site, claim| Box::pin(finish(turn, site, claim, ending))).await?;
            Ok(released(ended))
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.abandon_claim(claim))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        let key = key.clone();
        Box::pin(self.read(|turn, _| Box::pin(async move { runs::last_success(turn, &key).await })))
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        let key = key.clone();
        Box::pin(self.read(|turn, site| Box::pin(async move { holder(turn, site, &key).await })))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // In order where that is possible: a connection that is closed later, by its thread, still tidies up files
            // that may be another's by then.
            if let Some(line) = here().and_then(|here| self.lines.peek(here)) {
                line.value.close().await;
            }
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
        read_write: true,
        permits: true,
        min_hold: true,
        once_per: true,
        cohort: false,
        carries: false,
        together: false,
        wake: WakeStyle::Poll { from: Duration::from_millis(2), to: Duration::from_millis(50) },
        connection_per_hold: false,
        takeover_delay: Duration::from_millis(20),
        durability: Durability::Node,
        max_key_bytes: MAX_KEY_BYTES,
        any_key: true,
    }
}

fn released(freed: bool) -> Released {
    if freed { Released::Released } else { Released::NotOwner }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;

    #[tokio::test]
    async fn the_disk_is_waited_for_on_threads_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("locks.db").display());
        let sqlite = Sqlite::open(&url, &Clock::system()).await.unwrap();
        let key = LockKey::new("test", Key::text("a")).unwrap();
        let claim = Arc::new(Claim::new(key.clone(), Duration::from_secs(30), "site").unwrap());
        let Attempt::Acquired(hold) = sqlite.try_acquire(&claim, Stand::No).await.unwrap() else { panic!("refused") };
        assert!(matches!(sqlite.renew(&[&hold]).await.remove(0), Ok(Standing::Renewed(_))));
        assert!(sqlite.holder(&key).await.unwrap().is_some());
        assert_eq!(sqlite.release(&hold).await.unwrap(), Released::Released);
        let waited: Vec<_> = sqlite.site.place.waited.lock().unwrap().iter().cloned().collect();
        assert_eq!(waited, ["dlock-sqlite", "dlock-sqlite-look"]);
    }
}
