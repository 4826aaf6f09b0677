//! The Lua of exclusive locks. Each script may be sent again.
//!
//! The keys of one lock are in one hash slot:
//!
//! - `l`: the value (owner and note), with a lease.
//! - `l:q`: the wait queue, a sorted set of entries by time of joining.
//! - `l:a`: the processes of the queue, a hash. A process → the end of its lease in ms. `?` → the process that was
//!   handed the lock last and has not asked since, with its owner. `@` → the waiter that finds out when a foreign
//!   client has gone, and by when it asks again.
//! - `l:x`: notes about foreign clients: when their last turn began and ended, when one was last seen, since when its
//!   hold is known, when the lease of that hold ends, and how much time they are owed.
//!
//! Only `l` is passed in, and the other names are made of it. So the release of an uncontended lock carries one name
//! and runs two commands. A foreign client chooses a literal name. The keys beside such a lock have names of dlock's,
//! and a foreign value under the literal name is never changed.

use std::sync::LazyLock;

use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;
use crate::scripts::queue::{ADVANCE, ASKING};

/// Key: `l`. Arguments: value, entry, process, ttl, lease of the place. Takes the lock if it is free, else joins the
/// wait queue. Returns up to five parts:
///
/// 1. The outcome. 1: granted. 0: another claim of dlock's has the lock. 2: a foreign value. 3: a value without a
///    lease. 6: a foreign client has the lock, or it is their turn. 5: as 6, and the asker is the first waiter. 8 and
///    7: as 6 and 5, if no foreign client was ever seen.
/// 2. The token if granted, else the rest of the lease or of the turn in ms.
/// 3. The server's time in µs.
/// 4. For 5 to 8: in how many ms to ask again, if that is soon. For 0: 1 if the note follows. For all of them: 0 if
///    pushes from this server do not reach the asker's process.
/// 5. The note of the holder.
const ASK: &str = r"
local told=ask(redis.call('GET',L),false,ARGV[1],ARGV[2],ARGV[3],ARGV[4],ARGV[5])
if (told[1]==0 or told[1]>4) and hears(ARGV[3])==false then told[4]=0 end
return told
";

/// Key: `l`. Arguments: the holder's value, then the arguments of [`ASK`] for the next caller. If foreign clients were
/// seen, also the least length of the queue's turn in µs. Releases the lock and asks for it for the next caller.
/// Returns the outcome of `RELEASE` and the answer of `ASK`. If asking has failed, the lock is released all the same,
/// and the second part is false.
const RELEASE_TO: &str = r"
local me,v=ARGV[1],redis.call('GET',L)
local freed=v==me or v==me..' +line'
if freed then
  -- Before all else: a script that has written goes on without memory.
  redis.call('DEL',L)
  v=false
end
local ours=tonumber(ARGV[7] or '')
local seen,owed
if freed and ours then seen,owed=due(ours) end
local asked,answer=pcall(ask,v,freed and (seen and give_way(seen,owed) or 0),ARGV[2],ARGV[3],ARGV[4],ARGV[5],ARGV[6])
return {freed and 1 or 0,asked and answer}
";

/// Key: `l`. Arguments: value, ttl. Answers as `ASK` does, but takes nothing. Our own lock gets a new lease. The fourth
/// part is the note of dlock's holder, empty for a foreign client. Returns nothing at all if the lock is free.
const LOOK: &str = r"
local v=redis.call('GET',L)
if not v then return false end
local me=ARGV[1]
if v==me or v==me..' +line' then
  redis.call('PEXPIRE',L,ARGV[2])
  return {1,fence(),us}
end
local left,own=taken(L,v)
if not left then return own end
return {0,left,us,own and string.sub(v,34) or ''}
";

/// Key: `l`. Argument: value. Without the mark it is the well-known compare-and-delete and nothing more.
const RELEASE: &str = r"
local L,me=KEYS[1],ARGV[1]
local v=redis.call('GET',L)
if v==me then return redis.call('DEL',L) end
if v~=me..' +line' then return 0 end
";

/// Keys: the locks. Arguments: their values. Releases each as [`RELEASE`] does. For a lock with the mark it returns 2
/// and changes nothing.
const RELEASE_ALL: &str = r"
local done={}
for i,l in ipairs(KEYS) do
  local v=redis.pcall('GET',l)
  if v==ARGV[i] then
    done[i]=redis.call('DEL',l)
  elseif v==ARGV[i]..' +line' then
    done[i]=2
  elseif type(v)=='table' and v.err and not string.find(v.err,'^WRONGTYPE') then
    return v
  else
    done[i]=0
  end
end
return done
";

/// The end of [`RELEASE`] for a lock with waiters. Arguments: value, and, if foreign clients were seen, the least
/// length of the queue's turn in µs.
const HAND_ON: &str = r"
hand_on(ARGV[2])
return 1
";

/// Key: `l`. Arguments: value, entry. Releases the lock for an owner that may also wait in the queue.
const ABANDON: &str = r"
local me=ARGV[1]
redis.call('ZREM',Q,ARGV[2])
local v=redis.call('GET',L)
if v==me or v==me..' +line' then
  hand_on()
elseif redis.call('EXISTS',Q)==0 then
  redis.call('DEL',A)
end
return 1
";

/// Key: `l`. Arguments: value, ttl. It never creates a lock.
const RENEW: &str = r"
local v=redis.call('GET',KEYS[1])
if v==ARGV[1] or v==ARGV[1]..' +line' then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end
return 0
";

/// Keys: the locks. Arguments: value and ttl of each. Prolongs each as [`RENEW`] does.
const RENEW_ALL: &str = r"
local done={}
for i,l in ipairs(KEYS) do
  local me,v=ARGV[2*i-1],redis.pcall('GET',l)
  if v==me or v==me..' +line' then
    done[i]=redis.call('PEXPIRE',l,ARGV[2*i])
  elseif type(v)=='table' and v.err and not string.find(v.err,'^WRONGTYPE') then
    return v
  else
    done[i]=0
  end
end
return done
";

/// Keys: `l`, fence. Arguments: value, ttl, number of tokens, whether to reserve even while others wait. Returns 1 and
/// the highest of the tokens, 0 for a lock that is not ours any more, or 2 while others wait.
const RESERVE: &str = r"
local me,v=ARGV[1],redis.call('GET',KEYS[1])
if v==me..' +line' then
  if ARGV[4]=='0' then return {2,0} end
elseif v~=me then
  return {0,0}
end
redis.call('PEXPIRE',KEYS[1],ARGV[2])
local f=redis.call('INCRBY',F,ARGV[3])
if f<us then
  -- It was forgotten, or is an old one.
  f=us+ARGV[3]
  redis.call('SET',F,string.format('%.0f',f))
end
return {1,f}
";

/// Key: fence. Argument: the highest token that this process has seen. Runs on every new connection. A restart or a
/// failover always breaks connections, so the counter is right again before the first grant. So no grant needs to look
/// at the clock.
const SEED: &str = r"
local t=redis.call('TIME')
local least=math.max(t[1]*1000000+t[2],tonumber(ARGV[1]))
local f=tonumber(redis.call('GET',KEYS[1]) or '0')
if not f then return 0 end
if f<least then redis.call('SET',KEYS[1],string.format('%.0f',least)) end
return 1
";

/// Keys: `l`, fence. Arguments: value, the highest token seen. Draws a new token for a lock that is already ours, after
/// the server has lost its data.
const REPAIR: &str = r"
local v=redis.call('GET',KEYS[1])
if v~=ARGV[1] and v~=ARGV[1]..' +line' then return 0 end
local t=redis.call('TIME')
local f=tonumber(redis.call('GET',KEYS[2]) or '0') or 0
f=math.max(f,t[1]*1000000+t[2],tonumber(ARGV[2]))+1
redis.call('SET',KEYS[2],string.format('%.0f',f))
return f
";

/// The scripts, with their digests.
pub struct ExclusiveScripts {
    pub(crate) ask: Lua,
    pub(crate) look: Lua,
    /// Frees a lock.
    pub release: Lua,
    pub(crate) release_all: Lua,
    pub(crate) release_to: Lua,
    pub(crate) abandon: Lua,
    /// Prolongs a lock.
    pub renew: Lua,
    pub(crate) renew_all: Lua,
    pub(crate) reserve: Lua,
    pub(crate) seed: Lua,
    pub(crate) repair: Lua,
}

/// The keys beside a lock for which others wait.
const QUEUE: Option<&[&str]> = Some(&[":q", ":a", ":x"]);

/// All scripts.
pub static SCRIPTS: LazyLock<ExclusiveScripts> = LazyLock::new(|| ExclusiveScripts {
    ask: Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, ASKING, ASK]).on(QUEUE),
    look: Lua::new(&["local L=KEYS[1]", CLOCK, LOOK]).on(Some(&[])),
    release: Lua::new(&[RELEASE, CLOCK, ADVANCE, HAND_ON]).on(QUEUE),
    release_all: Lua::new(&[RELEASE_ALL]).on(None),
    release_to: Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, ASKING, RELEASE_TO]).on(QUEUE),
    abandon: Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, ABANDON]).on(QUEUE),
    renew: Lua::new(&[RENEW]).on(None),
    renew_all: Lua::new(&[RENEW_ALL]).on(None),
    reserve: Lua::new(&[CLOCK, RESERVE]).on(Some(&[])),
    seed: Lua::new(&[SEED]),
    repair: Lua::new(&[REPAIR]).on(Some(&[])),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::token::{FENCE, LEAST_TOKEN};
    use crate::layout::value::MARK;

    #[test]
    fn the_constants_are_those_of_the_scripts() {
        let all = [ADVANCE, ASKING, RELEASE_TO, LOOK, RELEASE, RELEASE_ALL, ABANDON, RENEW, RENEW_ALL, RESERVE, REPAIR];
        assert!(all.iter().all(|text| text.contains(&format!("'{MARK}'"))));
        assert!(ASKING.contains(&format!("string.sub(v,-{})", MARK.len())));
        assert!(CLOCK.contains(&format!("'{FENCE}'")) && CLOCK.contains(&format!("us or {LEAST_TOKEN}\n")));
    }
}
