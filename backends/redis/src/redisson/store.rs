//! `layout=redisson`: locks that Redisson's `RLock` understands, so that Java services and ours share one.
//!
//! A lock is a hash under its [literal](LockKey::literal) name, with one field, `<client>:<thread>`, that counts how
//! often its holder has taken it, and with a lease. A release deletes the hash and publishes that on the lock's
//! channel. Ours are held once, by a client that is the owner of the claim and by no thread.
//!
//! Our note is in a key beside the hash, with the same lease. There is no wait queue: all waiters that hear of a
//! release ask, and Java's threads come in between. Redisson counts no tokens for an `RLock`: those of our holders
//! rise, and Java's have none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::{Cmd, RedisWrite, ToRedisArgs, Value};
use dlock_contract::{
    Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Holder, LockKey, Note, Owner, Profile, Queue, Released,
    Result, Signal, Standing, Validity, Wake, WakeStyle,
};
use dlock_store::Clock;

use crate::connections::check;
use crate::connections::connection::Connection;
use crate::connections::pool::Connections;
use crate::connections::watch::Watch;
use crate::layout::name::LockName;
use crate::layout::units::millis;
use crate::lock::profile;
use crate::queue::limits::{poll, slow_poll};
use crate::redisson::channels::Channels;
use crate::redisson::scripts::SCRIPTS;
use crate::reply::fault;
use crate::reply::read::{as_array, each, released};
use crate::scripts::call::on;
use crate::topology::target::Target;
use crate::url::settings::Layout;

/// The note of a holder that is no dlock.
const STRANGER: &str = "not a lock of dlock's: a client of Redisson holds it";

/// Locks in Redis as Redisson's `RLock` keeps them, to be shared with Java services.
///
/// Exclusive locks only. Redisson's fair locks, its read and write locks and its semaphores keep more than one hash.
pub struct Redisson {
    pub(crate) connections: Arc<Connections>,
    pub(crate) channels: Channels,
    pub(crate) profile: Profile,
    clock: Clock,
    /// Follows failovers.
    pub(crate) watch: Mutex<Option<Watch>>,
}

impl Redisson {
    /// Connects as [`Redis::connect`](crate::Redis::connect) does, but to no cluster; the URL says `layout=redisson`.
    ///
    /// # Errors
    /// As [`Redis::connect`](crate::Redis::connect).
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let target = Target::parse(url)?;
        target.settings.check_layout(Layout::Redisson)?;
        Self::open(target, clock).await
    }

    pub(crate) async fn open(target: Target, clock: &Clock) -> Result<Self> {
        if target.settings.wait_replicas > 0 {
            return Err(Error::config("wait_replicas", "wait_replicas is not for locks in Redisson's layout"));
        }
        // Our thread runs the timers that bound what follows.
        dlock_store::background()?;
        let connections = Arc::new(Connections::new(target, clock.clone()));
        check::check_and_warn(&connections).await?;
        check_channel(&connections).await?;
        connections.note_form(connections.form()).await?;
        connections.open_for_renewals().await?;
        let watch = Watch::start(&connections)?;
        Ok(Self {
            channels: Channels::new(connections.clone()),
            connections,
            profile: profile(),
            clock: clock.clone(),
            watch: Mutex::new(watch),
        })
    }

    /// One attempt. The quarantine is checked before and after it.
    pub(crate) async fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let name = claim.key.literal()?;
        let quarantine = &self.connections.quarantine;
        quarantine.rules.asks_for(claim.ttl);
        // Opens the connection, if there is none, and so finds out.
        drop(self.connections.here().await?);
        self.connections.admit(&name).await?;
        let attempt = match queue {
            Queue::Leave => self.ask(claim, &name).await?,
            Queue::Join { until, .. } => self.ask_and_listen(claim, &name, until).await?,
        };
        match (attempt, quarantine.check(|| self.clock.now())) {
            // If the lock is refused now, the engine releases it, as after every failure.
            (Attempt::Acquired(_), Err(error)) => Err(error),
            (attempt, _) => Ok(attempt),
        }
    }

    async fn ask_and_listen(&self, claim: &Arc<Claim>, name: &LockKey, until: BootInstant) -> Result<Attempt> {
        let channel = channel(name);
        if !self.channels.has(&channel, &claim.owner) {
            // Nobody may be there, and then nothing needs to be opened.
            let attempt = self.ask(claim, name).await?;
            if !matches!(attempt, Attempt::Contended(_)) {
                return Ok(attempt);
            }
        }
        let ear = self.channels.listen(&channel, claim.owner, until).await?;
        // Earlier messages are lost; later ones are not.
        Ok(match (self.ask(claim, name).await?, ear) {
            (Attempt::Contended(Wake { lease_left, .. }), ear) => {
                let left = lease_left.unwrap_or_default();
                let now = self.clock.now();
                let wake = match ear {
                    Some(ear) => {
                        let news = async move {
                            ear.news().await;
                            Ok(Signal::Ask)
                        };
                        Wake::on(news).ask_by(now.after(slow_poll(left)))
                    }
                    None => Wake::poll().ask_by(now.after(poll())),
                };
                Attempt::Contended(wake.lease_left(left))
            }
            (won, _) => {
                self.channels.dismiss(&channel, &claim.owner);
                won
            }
        })
    }

    async fn ask(&self, claim: &Arc<Claim>, name: &LockKey) -> Result<Attempt> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let from = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPTS.take, |command| {
                on(command, LockName(name)).arg(Field(&claim.owner)).arg(millis(claim.ttl)).arg(claim.note.as_str());
                command.arg(high);
            })
            .await?;
        let [Value::Int(outcome), Value::Int(number)] = as_array(&answer)? else {
            return Err(fault::unexpected(&answer));
        };
        let number = u64::try_from(*number).unwrap_or_default();
        match outcome {
            1 => {
                self.connections.saw(number);
                let validity = Validity::new(from, claim.ttl);
                Hold::new(claim.clone(), number, validity).map(Attempt::Acquired)
            }
            0 => {
                let left = Duration::from_millis(number);
                Ok(Attempt::Contended(Wake::poll().ask_by(from.after(left)).lease_left(left)))
            }
            2 => Err(fault::conflict()),
            4 => Err(fault::bad_token(number)),
            _ => Err(fault::unexpected(&answer)),
        }
    }

    pub(crate) async fn renew_batch(&self, holds: &[&Hold]) -> Result<Vec<Result<Standing>>> {
        let names = holds.iter().map(|hold| hold.claim.key.literal()).collect::<Result<Vec<_>>>()?;
        let shortest = holds.iter().map(|hold| hold.claim.ttl).min().unwrap_or_default();
        let shared = self.connections.for_renewals(shortest).await?;
        let from = self.clock.now();
        let answer = self.connections.script(&shared, &SCRIPTS.renew_all, |command| {
            command.arg(names.len());
            for name in &names {
                command.arg(LockName(name));
            }
            for hold in holds {
                command.arg(Field(&hold.claim.owner)).arg(millis(hold.claim.ttl));
            }
        });
        let answer = self.connections.heard(&shared, shortest, answer).await?;
        let mut answers = each(Some(answer));
        let standing = |hold: &&Hold| match answers.next().unwrap_or(Value::Nil) {
            Value::Int(1) => Ok(Standing::Renewed(Validity::new(from, hold.claim.ttl))),
            Value::Int(0) => Ok(Standing::Lost),
            other => Err(fault::unexpected(&other)),
        };
        Ok(holds.iter().map(standing).collect())
    }

    pub(crate) async fn free(&self, shared: &Arc<Connection>, claim: &Claim, name: &LockKey) -> Result<Released> {
        let build = |command: &mut Cmd| {
            on(command, LockName(name)).arg(Field(&claim.owner)).arg(channel(name));
        };
        released(&self.connections.script(shared, &SCRIPTS.release, build).await?)
    }

    pub(crate) async fn give_up(&self, claim: &Claim, name: &LockKey) -> Result<()> {
        self.connections
            .after(claim.origin, |shared| async move { self.free(&shared, claim, name).await })
            .await
            .map(drop)
    }

    pub(crate) async fn holder(&self, name: &LockKey) -> Result<Option<Holder>> {
        let shared = self.connections.here().await?;
        let build = |command: &mut Cmd| {
            on(command, LockName(name));
        };
        let answer = self.connections.script(&shared, &SCRIPTS.holder, build).await?;
        match &answer {
            Value::Nil => Ok(None),
            Value::Array(parts) => match &parts[..] {
                [Value::Int(is_ours), Value::Int(left), Value::BulkString(note)] => {
                    let note = if *is_ours == 1 { String::from_utf8_lossy(note) } else { STRANGER.into() };
                    Ok(Some(Holder::new(Note::from_stored(&note)).with(|holder| {
                        // A hash without a lease is no lock of Redisson's.
                        holder.lease_left = u64::try_from(*left).ok().map(Duration::from_millis);
                    })))
                }
                _ => Err(fault::unexpected(&answer)),
            },
            other => Err(fault::unexpected(other)),
        }
    }
}

/// The holder of a lock, as Redisson writes it: a client, which is the owner id, and a thread, which is always 0.
struct Field<'a>(&'a Owner);

impl ToRedisArgs for Field<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let hex = self.0.to_hex();
        let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
        let (a, b, c, d, e) = (part(0..8), part(8..12), part(12..16), part(16..20), part(20..32));
        out.write_arg_fmt(format_args!("{a}-{b}-{c}-{d}-{e}:0"));
    }
}

/// If the account may not publish a release, waiters would sleep until the end of the lease, each time.
async fn check_channel(connections: &Arc<Connections>) -> Result<()> {
    let shared = connections.here().await?;
    let build = |command: &mut Cmd| {
        on(command, "dl1:{dlock}").arg("redisson_lock__channel:{dlock}");
    };
    match connections.script(&shared, &SCRIPTS.may_tell, build).await? {
        Value::Int(0) => Err(Error::new(
            ErrorKind::PermissionDenied,
            "the Redis user may not publish to redisson_lock__channel:*, where releases are published",
        )),
        // Also a server without such a question; what lacks is found when it is needed.
        _ => Ok(()),
    }
}

/// The channel on which Redisson publishes releases of a lock.
pub(crate) fn channel(name: &LockKey) -> String {
    match name.as_str() {
        tagged if tagged.contains('{') => format!("redisson_lock__channel:{tagged}"),
        name => format!("redisson_lock__channel:{{{name}}}"),
    }
}

fn profile() -> Profile {
    profile::profile().with(|redisson| {
        (redisson.fair, redisson.read_write, redisson.permits) = (false, false, false);
        redisson.wake = WakeStyle::Hint;
        redisson.any_key = false;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_looks_like_one_of_redisson() {
        let owner = Owner::from_bytes([0x6f; 16]);
        assert_eq!(Field(&owner).to_redis_args(), [b"6f6f6f6f-6f6f-6f6f-6f6f-6f6f6f6f6f6f:0"]);
    }

    #[test]
    fn a_channel_is_named_as_redisson_names_it() {
        let named = |text| channel(&LockKey::new("shop", dlock_contract::Key::text(text)).unwrap().literal().unwrap());
        assert_eq!(named("stock:42"), "redisson_lock__channel:{stock:42}");
        assert_eq!(named("{shop}:stock:42"), "redisson_lock__channel:{shop}:stock:42");
    }
}
