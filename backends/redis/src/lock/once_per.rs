//! `once_per` and `min_hold`: one run in each period, and keys that stay taken after a release.
//!
//! `l:r` is a hash: `run` → the boundary of the period that was started last and the time of the start, both in µs of
//! the server's clock, the owner, `s` for started or `e` for ended; `ok` → start, length
//! in µs and note of the last success.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use ::redis::{Cmd, RedisWrite, ToRedisArgs, Value};
use dlock_contract::{
    Attempt, Claim, Error, ErrorKind, Hold, LastSuccess, LockKey, Mode, Note, OncePer, Released, Result, RunEnd,
};

use crate::connections::connection::Connection;
use crate::layout::name::{LockName, beside};
use crate::layout::units::{micros, millis};
use crate::layout::value::LockValue;
use crate::lock::store::Redis;
use crate::reply::fault;
use crate::reply::read::released;
use crate::scripts::call::on;
use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;
use crate::scripts::queue::ADVANCE;
use crate::scripts::try_once::{LOOK, TAKE};

/// How long a record is kept after its last use.
const RECORD_LEASE: Duration = Duration::from_secs(400 * 86_400);

/// `l`; value, ttl, period in µs, 1 if a crashed run is run again, lease of the record, offset in µs. As `ASK` without
/// a place, and 4 if the period's run was started already.
///
/// Boundaries are compared, not numbers: a number of one period's length means nothing to another one's.
const DUE: &str = r"
local period,offset=tonumber(ARGV[3]),tonumber(ARGV[6])
local due=us-offset+period/2
due=due-math.fmod(due,period)+offset
local run=redis.call('HGET',B..':r','run')
if run then
  local last,o,state=string.match(run,'^(%d+) %d+ (%S+) (%a)$')
  last=tonumber(last or '0')
  -- One that may be run again is so once its lock is free; and a claim that still asks has not begun its own.
  local again=state=='s' and (ARGV[4]=='1' or o==string.sub(me,1,32))
  if last>=due and not again then return {4,0,us} end
  due=math.max(due,last)
end
";

const START: &str = r"
redis.call('HSET',B..':r','run',string.format('%.0f %.0f %s s',due,us,string.sub(me,1,32)))
redis.call('PEXPIRE',B..':r',ARGV[5])
return {1,fence(),us}
";

/// `l`; value, ms for which the key stays taken, how the run went (nothing, `f`, `s`), µs that it took, lease of the
/// record; the length of the queue's turn in µs if foreign clients were seen.
const END: &str = r"
local me,keep,run=ARGV[1],tonumber(ARGV[2]),ARGV[3]
local v=redis.call('GET',L)
if v~=me and v~=me..' +line' then return 0 end
-- The process that was handed it lives: its other places stay. Unless it is another one, silent since before the present
-- hold. First of all, since a script that has written goes on without memory.
local known,silent,o=pcall(handed)
if known and silent and o~=string.sub(me,1,32) then redis.call('HDEL',A,silent) end
redis.pcall('HDEL',A,'?')
if run~='' then
  local R=B..':r'
  local last,at,o=string.match(redis.call('HGET',R,'run') or '','^(%d+) (%d+) (%S+) ')
  if o==string.sub(me,1,32) then
    redis.call('HSET',R,'run',last..' '..at..' - e')
  else
    at=string.format('%.0f',us-ARGV[4])
  end
  if run=='s' then redis.call('HSET',R,'ok',at..' '..ARGV[4]..' '..string.sub(me,34)) end
  -- Never shorter: another run under this name may have a longer period.
  if redis.call('PTTL',R)<tonumber(ARGV[5]) then redis.call('PEXPIRE',R,ARGV[5]) end
end
if keep>0 then
  -- Nobody's, until it ends. The first in line asks again, to hear when that is.
  redis.call('SET',L,string.rep('0',32)..string.sub(v,33),'PX',keep)
  local e=redis.call('ZRANGE',Q,0,0)[1]
  if e then
    local p,o=string.match(e,'^(%x+) %d+ (%x+)')
    tell(p,'ask '..o..' ')
  end
elseif v==me then
  redis.call('DEL',L)
else
  hand_on(ARGV[6])
end
return 1
";

/// `l`; value, 1 if its period is to be given back: nothing was run under the claim, so its boundary is due again, and
/// all earlier ones are not.
const ABANDON: &str = r"
local me=ARGV[1]
if ARGV[2]=='1' then
  local last,at,o=string.match(redis.call('HGET',B..':r','run') or '','^(%d+) (%d+) (%S+) s$')
  if o==string.sub(me,1,32) then
    -- Changes nothing; but a script that has written goes on without memory.
    redis.call('HDEL',B..':r','')
    redis.call('HSET',B..':r','run',string.format('%.0f %s - e',last-1,at))
  end
end
local v=redis.call('GET',L)
if v~=me and v~=me..' +line' then return 0 end
if v==me then redis.call('DEL',L) else hand_on() end
return 1
";

static ONCE: LazyLock<Lua> = LazyLock::new(|| Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, LOOK, DUE, TAKE, START]));
static FINISH: LazyLock<Lua> = LazyLock::new(|| Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, END]));
static UNDO: LazyLock<Lua> = LazyLock::new(|| Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, ABANDON]));

impl Redis {
    /// Polls instead of joining the queue, because a neighbour's win ends the wait too.
    pub(crate) async fn ask_for_run(&self, claim: &Arc<Claim>, once: OncePer) -> Result<Attempt> {
        let shared = self.connections.here().await?;
        let high = self.connections.high();
        let sent = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &ONCE, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(millis(claim.ttl));
                command.arg(micros(once.period)).arg(u8::from(once.rerun)).arg(record_lease(Some(&once)));
                command.arg(micros(once.offset));
            })
            .await?;
        self.read_answer(claim, &answer, high, sent).await
    }

    /// Frees the lock, and gives the period back. With `rerun` the period is not given back: a start that has not ended
    /// may be run again anyway, and it may belong to another owner that died.
    pub(crate) async fn abandon_run(
        &self,
        shared: &Arc<Connection>,
        claim: &Claim,
        once: OncePer,
    ) -> Result<Result<()>> {
        let answer = self
            .connections
            .script(shared, &UNDO, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(u8::from(!once.rerun));
            })
            .await?;
        Ok(released(&answer).map(drop))
    }

    pub(crate) async fn finish(&self, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Result<Released> {
        let claim = &*hold.claim;
        let keep = keep.map_or(0, keep_ms);
        if claim.mode != Mode::Exclusive {
            return self.end_share(claim, keep).await;
        }
        let (run, took) = match run {
            None => ("", 0),
            Some(RunEnd::Failed) => ("f", 0),
            Some(RunEnd::Succeeded { took }) => ("s", micros(took)),
        };
        let shared = self.connections.here().await?;
        let turn = self.turn_after(hold);
        let answer = self
            .connections
            .script(&shared, &FINISH, |command| {
                on(command, LockName(&claim.key)).arg(LockValue(claim)).arg(keep);
                command.arg(run).arg(took).arg(record_lease(claim.once_per.as_deref()));
                if let Some(turn) = turn {
                    command.arg(micros(turn));
                }
            })
            .await?;
        released(&answer)
    }

    pub(crate) async fn success(&self, key: &LockKey) -> Result<Option<LastSuccess>> {
        let shared = self.connections.here().await?;
        let mut get = Cmd::new();
        get.arg("HGET").arg(Record(key)).arg("ok");
        match self.connections.command(&shared, get).await? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => read_success(&text).map(Some).ok_or_else(|| {
                Error::new(
                    ErrorKind::CorruptState,
                    "the record of the last success in Redis has another form than dlock's",
                )
            }),
            other => Err(fault::unexpected(&other)),
        }
    }
}

/// The record's name.
struct Record<'a>(&'a LockKey);

impl ToRedisArgs for Record<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(&beside(&LockName(self.0).to_redis_args().concat(), ":r"));
    }
}

fn read_success(text: &[u8]) -> Option<LastSuccess> {
    let text = String::from_utf8_lossy(text);
    let mut parts = text.splitn(3, ' ');
    let mut time = || parts.next()?.parse().ok().map(Duration::from_micros);
    let (started, took) = (UNIX_EPOCH.checked_add(time()?)?, time()?);
    Some(LastSuccess::new(started, took, Note::from_stored(parts.next()?)))
}

fn record_lease(once: Option<&OncePer>) -> u64 {
    millis(once.map_or(RECORD_LEASE, |once| once.period.saturating_mul(2).max(RECORD_LEASE)).min(LONGEST_LEASE))
}

/// The server refuses leases that end beyond its clock's range.
const LONGEST_LEASE: Duration = Duration::from_secs(10_000 * 365 * 86_400);

/// Rounded up, since a key must not become free too early.
fn keep_ms(keep: Duration) -> u64 {
    millis(keep.saturating_add(Duration::from_nanos(999_999)).min(LONGEST_LEASE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_or_refused() {
        let success = read_success(b"1700000000000001 2500000 h=x s=y").unwrap();
        assert_eq!(success.started, UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001));
        assert_eq!(success.took, Duration::from_millis(2500));
        assert_eq!(success.note.site(), Some("y"));
        for bad in ["", "1", "1 2", "x 2 n", "1 -2 n"] {
            assert!(read_success(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_part_of_a_millisecond_is_rounded_up() {
        assert_eq!(keep_ms(Duration::from_nanos(1)), 1);
        assert_eq!(keep_ms(Duration::from_millis(7)), 7);
        assert_eq!(keep_ms(Duration::ZERO), 0);
        assert!(keep_ms(Duration::from_secs(u64::MAX / 2)) < u64::MAX);
    }
}
