//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use ::redis::{Cmd, ToRedisArgs, Value, cmd};
use dlock_contract::{
    BreakRecord, Claim, Cursor, Error, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Mode, Note, Owner,
    Page, Released, Result,
};
use futures::future::BoxFuture;

use crate::layout::marker::MARKER;
use crate::layout::name::{LockName, beside};
use crate::layout::units::millis;
use crate::layout::value::{self, MARK, is_ours, note_of};
use crate::lock::store::Redis;
use crate::reply::fault;
use crate::reply::read::released;
use crate::scripts::call::on;
use crate::scripts::exclusive::SCRIPTS;

/// The shortest time for which the record of a broken hold is kept.
pub const SHORTEST_RECORD: Duration = Duration::from_secs(60);

/// The value under a lock's name.
enum Found {
    Nothing,
    /// The whole value of a lock with one holder, its lease, and the number of waiters.
    One(Vec<u8>, Duration, Option<u64>),
    /// A lock that several may hold: its family.
    Shares(Vec<u8>),
    /// A foreign client's lock, with its lease.
    ForeignClient(Duration),
}

/// One share: its owner, its end by the server's clock in µs, and its note.
struct Share {
    owner: String,
    ends_us: u64,
    permit: Option<u32>,
    token: u64,
    note: String,
}

impl Redis {
    pub(crate) async fn state(&self, key: &LockKey) -> Result<LockState> {
        match self.find(key).await? {
            Found::Nothing => Ok(LockState::new(Vec::new(), Some(0))),
            Found::ForeignClient(left) => Ok(LockState::new(vec![Holder::foreign_client(Some(left))], None)),
            Found::One(value, left, waiters) => {
                let holder = Holder::new(note_of(&value).ok_or_else(fault::conflict)?).with(|holder| {
                    holder.id = owner_of(&value).as_ref().map(HoldId::of);
                    holder.lease_left = Some(left);
                });
                Ok(LockState::new(vec![holder], waiters))
            }
            Found::Shares(_) => {
                let (shares, waiters, now_us) = self.shares(key).await?;
                let holder = |share: Share| {
                    Holder::new(Note::from_stored(&share.note)).with(|holder| {
                        holder.id = owner_in_hex(&share.owner).as_ref().map(HoldId::of);
                        holder.token = Some(share.token);
                        holder.lease_left = Some(Duration::from_micros(share.ends_us.saturating_sub(now_us)));
                        holder.slot = share.permit;
                    })
                };
                Ok(LockState::new(shares.into_iter().map(holder).collect(), waiters))
            }
        }
    }

    /// The notes of the first waiters of a lock with one holder. `None` for other modes, whose wait queue has no notes, and if
    /// the account may not read the queue.
    pub(crate) async fn waiting(&self, key: &LockKey, limit: usize) -> Result<Option<Vec<Note>>> {
        let connection = self.connections.here().await?;
        let name = name_of(key);
        let (mut value, mut entries) = (cmd("GET"), cmd("ZRANGE"));
        value.arg(&name);
        entries.arg(beside(&name, ":q")).arg(0).arg(limit.max(1) - 1);
        let answers = self.connections.together(&connection, key, [value, entries]).await?;
        let [value, Value::Array(entries)] = &answers[..] else { return Ok(None) };
        if matches!(value, Value::BulkString(value) if value.starts_with(MARKER.as_bytes())) {
            return Ok(None);
        }
        let note = |entry: &Value| {
            let Value::BulkString(entry) = entry else { return None };
            // The process, the length of the grant, and the value of the lock if it were granted.
            note_of(entry.splitn(3, |byte| *byte == b' ').nth(2)?)
        };
        Ok(Some(entries.iter().filter_map(note).collect()))
    }

    async fn find(&self, key: &LockKey) -> Result<Found> {
        let connection = self.connections.here().await?;
        let name = name_of(key);
        let ask = |what: &str, name: &[u8]| {
            let mut command = cmd(what);
            command.arg(name);
            command
        };
        let wait_queue = beside(&name, ":q");
        let commands = [ask("GET", &name), ask("PTTL", &name), ask("ZCARD", &wait_queue)];
        let answers = self.connections.together(&connection, key, commands).await?;
        let [value, left, waiters] = &answers[..] else { return Err(fault::unexpected(&Value::Nil)) };
        let waiters = match waiters {
            Value::Int(count) => u64::try_from(*count).ok(),
            // The account may not count them.
            _ => None,
        };
        let own = key.as_str().starts_with("dl1:");
        match (value, left) {
            (Value::Nil, _) => Ok(Found::Nothing),
            (Value::BulkString(value), _) if own && value.starts_with(MARKER.as_bytes()) => {
                Ok(Found::Shares(value.clone()))
            }
            (Value::BulkString(value), Value::Int(left @ 0..)) => {
                let left = Duration::from_millis(left.unsigned_abs());
                let is_one = own || is_ours(value);
                Ok(if is_one { Found::One(value.clone(), left, waiters) } else { Found::ForeignClient(left) })
            }
            (Value::BulkString(_), Value::Int(-1)) => Err(fault::conflict()),
            // The hold has ended between the two commands.
            (Value::BulkString(_), Value::Int(_)) => Ok(Found::Nothing),
            (Value::BulkString(_), other) | (other, _) => Err(fault::unexpected(other)),
        }
    }

    /// Reads the shares of a lock in the order of their grants, the number of waiters, and the server's clock in µs.
    async fn shares(&self, key: &LockKey) -> Result<(Vec<Share>, Option<u64>, u64)> {
        let connection = self.connections.here().await?;
        let name = name_of(key);
        let part = |ending| beside(&name, ending);
        let mut ends = cmd("ZRANGE");
        ends.arg(part(":s")).arg(0).arg(-1).arg("WITHSCORES");
        let mut known = cmd("HGETALL");
        known.arg(part(":h"));
        let mut waiters = cmd("ZCARD");
        waiters.arg(part(":w"));
        let answers = self.connections.together(&connection, key, [ends, known, waiters, cmd("TIME")]).await?;
        let [ends, known, Value::Int(waiters), time] = &answers[..] else {
            return Err(fault::unexpected(answers.first().unwrap_or(&Value::Nil)));
        };
        let ends: Vec<(String, f64)> = read(ends)?;
        let known: HashMap<String, String> = read(known)?;
        let (seconds, micros): (u64, u64) = read(time)?;
        let now_us = seconds * 1_000_000 + micros;
        let mut shares: Vec<_> = ends
            .into_iter()
            .filter_map(|(owner, ends)| share(known.get(&owner)?, owner, ends))
            .filter(|share| share.ends_us > now_us)
            .collect();
        shares.sort_by_key(|share| share.token);
        Ok((shares, u64::try_from(*waiters).ok(), now_us))
    }

    pub(crate) async fn break_one(&self, key: &LockKey, id: HoldId, record: &BreakRecord) -> Result<bool> {
        match self.find(key).await? {
            Found::One(value, left, _) if owner_of(&value).is_some_and(|owner| HoldId::of(&owner) == id) => {
                self.leave_record(key, id, record, left).await?;
                let connection = self.connections.here().await?;
                let value = value.strip_suffix(MARK.as_bytes()).unwrap_or(&value);
                let release = self.connections.script(&connection, &SCRIPTS.release, |command| {
                    on(command, LockName(key)).arg(value);
                });
                self.broken(key, id, released(&release.await?)? == Released::Released).await
            }
            Found::Shares(family) => {
                let (shares, _, now_us) = self.shares(key).await?;
                let owner = |share: &Share| owner_in_hex(&share.owner).filter(|owner| HoldId::of(owner) == id);
                let found = shares.iter().find_map(|share| Some((owner(share)?, share.ends_us)));
                let Some((owner, ends_us)) = found else { return Ok(false) };
                self.leave_record(key, id, record, Duration::from_micros(ends_us.saturating_sub(now_us))).await?;
                let claim = Claim::plain(key.clone(), owner, SHORTEST_RECORD, Note::from_stored(""))
                    .with(|claim| claim.mode = mode_of(&family));
                let ended = self.end_share(&claim, 0).await? == Released::Released;
                self.broken(key, id, ended).await
            }
            _ => Ok(false),
        }
    }

    /// Writes the record before the hold ends, so that the holder finds it.
    async fn leave_record(&self, key: &LockKey, id: HoldId, record: &BreakRecord, left: Duration) -> Result<()> {
        let mut set = cmd("SET");
        set.arg(record_name(key, id)).arg(record.as_str()).arg("PX").arg(millis(left.max(SHORTEST_RECORD)));
        self.one(key, set).await.map(drop)
    }

    /// Deletes the record if nothing was broken, because the hold had ended by itself.
    async fn broken(&self, key: &LockKey, id: HoldId, is_broken: bool) -> Result<bool> {
        if !is_broken {
            let mut delete = cmd("DEL");
            delete.arg(record_name(key, id));
            self.one(key, delete).await?;
        }
        Ok(is_broken)
    }

    async fn one(&self, key: &LockKey, command: Cmd) -> Result<Value> {
        let connection = self.connections.here().await?;
        let mut answers = self.connections.together(&connection, key, [command]).await?;
        match answers.pop() {
            Some(Value::ServerError(error)) => Err(fault::unexpected(&Value::ServerError(error))),
            Some(answer) => Ok(answer),
            None => Err(fault::unexpected(&Value::Nil)),
        }
    }

    pub(crate) async fn record(&self, key: &LockKey, id: HoldId) -> Result<Option<BreakRecord>> {
        let mut get = cmd("GET");
        get.arg(record_name(key, id));
        match self.one(key, get).await? {
            Value::BulkString(record) => Ok(Some(BreakRecord::from_stored(&String::from_utf8_lossy(&record)))),
            _ => Ok(None),
        }
    }

    /// One step of a scan over the names of strings that match. In a cluster, one server is scanned after another.
    pub(crate) async fn scan(&self, pattern: &[u8], listing: &Listing) -> Result<(Vec<Vec<u8>>, Option<Cursor>)> {
        let (slot, cursor) = place_of(listing.after.as_ref())?;
        let connection = self.connections.here().await?;
        let mut commands = vec![scan_command(cursor, pattern, listing)];
        let is_cluster = self.connections.cluster().is_some();
        if is_cluster {
            commands.push(cmd("CLUSTER"));
            commands.last_mut().map(|slots| slots.arg("SLOTS"));
        }
        let answers = self.connections.at_slot(&connection, slot, commands).await?;
        let (next, names) = scanned(answers.first().unwrap_or(&Value::Nil))?;
        let next = match next {
            0 if is_cluster => next_server(answers.get(1).unwrap_or(&Value::Nil), slot)?.map(|slot| (slot, 0)),
            0 => None,
            cursor => Some((slot, cursor)),
        };
        Ok((names, next.map(|(slot, cursor)| Cursor::new(format!("{slot}.{cursor}")))))
    }
}

impl Inspect for Redis {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let (names, next) = self.scan(&lock_pattern(listing, false)?, listing).await?;
            Ok(Page::new(names.into_iter().filter_map(|name| listed_key(name, false)).collect(), next))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.break_one(key, id, record))
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        Box::pin(self.waiting(key, limit))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(self.record(&hold.claim.key, HoldId::of(&hold.claim.owner)))
    }
}

/// One step of a scan over the names of strings that match.
pub fn scan_command(cursor: u64, pattern: &[u8], listing: &Listing) -> Cmd {
    let mut scan = cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(listing.limit()).arg("TYPE").arg("string");
    scan
}

/// The cursor of the next step, 0 after the last one, and the names that were found.
///
/// # Errors
/// If the answer has another form.
pub fn scanned(answer: &Value) -> Result<(u64, Vec<Vec<u8>>)> {
    read(answer)
}

/// The pattern of the names to list.
///
/// # Errors
/// If the namespace is invalid.
pub fn lock_pattern(listing: &Listing, is_literal: bool) -> Result<Vec<u8>> {
    if is_literal {
        return Ok([&escaped(&listing.prefix)[..], b"*"].concat());
    }
    let prefix = listing.name_prefix()?;
    let beginning = prefix.strip_prefix("dl1:").unwrap_or(&prefix);
    Ok([b"dl1:{", &escaped(beginning)[..], b"*}"].concat())
}

/// The lock with the name that was found; `None` if it is not the name of a lock.
#[must_use]
pub fn listed_key(name: Vec<u8>, is_literal: bool) -> Option<LockKey> {
    let name = String::from_utf8(name).ok()?;
    if is_literal {
        return (!name.starts_with("dl1:")).then(|| LockKey(name.into()));
    }
    LockKey::from_stored(&format!("dl1:{}", name.strip_prefix("dl1:{")?.strip_suffix('}')?))
}

fn name_of(key: &LockKey) -> Vec<u8> {
    LockName(key).to_redis_args().concat()
}

/// The name of the record of a broken hold. It is beside the lock, so that it is in the lock's slot and under the
/// account's rights.
#[must_use]
pub fn record_name(key: &LockKey, id: HoldId) -> Vec<u8> {
    beside(&name_of(key), &format!(":b:{id}"))
}

/// The owner in a value. `None` for a key that stays taken after its hold has ended: its owner is all zeros.
#[must_use]
pub fn owner_of(value: &[u8]) -> Option<Owner> {
    value::owner_of(value).filter(|owner| owner.as_bytes().iter().any(|byte| *byte != 0))
}

/// The owner of a share. `None` for a share that stays taken after its hold has ended: it begins with a word.
fn owner_in_hex(text: &str) -> Option<Owner> {
    value::owner_of(format!("{text} ").as_bytes())
}

/// Any mode of this family. The script that ends a share needs only the family.
fn mode_of(family: &[u8]) -> Mode {
    let text = std::str::from_utf8(family).unwrap_or_default();
    let limit = text.strip_prefix(MARKER).and_then(|text| text.strip_prefix("permits:"));
    limit.and_then(|limit| limit.parse::<NonZeroU32>().ok()).map_or(Mode::Read, Mode::Permits)
}

/// Reads `mode slot token process note`.
fn share(known: &str, owner: String, ends: f64) -> Option<Share> {
    let mut parts = known.splitn(5, ' ');
    let (mode, slot, token) = (parts.next()?, parts.next()?, parts.next()?);
    let note = parts.nth(1)?.to_owned();
    let permit = slot.parse().ok().filter(|_| mode == "p");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "µs since 1970, far below 2^53")]
    let ends_us = ends as u64;
    Some(Share { owner, ends_us, permit, token: token.parse().ok()?, note })
}

fn read<T: ::redis::FromRedisValue>(answer: &Value) -> Result<T> {
    if let Value::ServerError(_) = answer {
        return Err(fault::unexpected(answer));
    }
    T::from_redis_value(answer.clone()).map_err(|_| fault::unexpected(answer))
}

/// A pattern that matches only this text.
fn escaped(text: &str) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}

/// The slot whose server is being scanned, and the server's cursor.
fn place_of(cursor: Option<&Cursor>) -> Result<(u16, u64)> {
    let Some(cursor) = cursor else { return Ok((0, 0)) };
    let (slot, scanned) = cursor.as_str().split_once('.').unwrap_or_default();
    let place = slot.parse().ok().zip(scanned.parse().ok());
    place.ok_or_else(|| Error::config("after", "the cursor was not given by this store"))
}

/// The first slot of the server that is scanned after the server of `slot`. Servers are in the order of their first
/// slots.
fn next_server(slots: &Value, slot: u16) -> Result<Option<u16>> {
    let Value::Array(ranges) = slots else { return Err(fault::unexpected(slots)) };
    let mut first_of: HashMap<String, u16> = HashMap::new();
    let mut present = None;
    for range in ranges {
        let Value::Array(parts) = range else { return Err(fault::unexpected(range)) };
        let [Value::Int(start), Value::Int(end), Value::Array(primary), ..] = &parts[..] else {
            return Err(fault::unexpected(range));
        };
        let (start, end) = (u16::try_from(*start).unwrap_or(0), u16::try_from(*end).unwrap_or(u16::MAX));
        let id: String = read(primary.get(2).unwrap_or(&Value::Nil))?;
        if (start..=end).contains(&slot) {
            present = Some(id.clone());
        }
        let first = first_of.entry(id).or_insert(start);
        *first = start.min(*first);
    }
    let scanned = present.and_then(|id| first_of.get(&id).copied()).unwrap_or(slot);
    Ok(first_of.into_values().filter(|first| *first > scanned).min())
}
