//! The Lua of exclusive locks. Each script may be sent again.
//!
//! Keys of one lock, in one hash slot: `l` its value (owner and note, with a lease), `l:q` its wait queue (sorted set of
//! entries by time of joining), `l:a` its processes (hash: process → lease in ms, and `?` → the process that was handed
//! the lock last and has not asked since, and its owner; `@` → the waiter that finds out when a foreign client has gone, and
//! by when it asks again). Only `l` is passed in; the other two are made of it, so that
//! the release of an uncontended lock carries one name and runs two commands.
//!
//! A literal name is chosen by somebody else. The keys beside such a lock have names of ours, and a foreign value under
//! the name is never changed. `:x` has notes about foreign clients: when their last turn began and ended, when one was
//! seen last, of the hold that was found then since when it has been known, and when its lease ends, and how much time
//! they are owed.

use std::sync::LazyLock;

use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;
use crate::scripts::queue::{ADVANCE, ASKING};

/// `l`; value, entry, process, ttl, lease of the place. Gives 1 and the fence, 0 and the lease left, 2 for a foreign
/// value, 3 for a value without a lease, 6 and the lease left behind a foreign client or what is left of their turn, 5
/// and the same if the asker is the first waiter, 8 and 7 for those two if no foreign client was ever seen; the server's time in µs; for the first one in how many ms to ask again,
/// if that is soon; for another holder of ours 1 and its note; and in the place of that 0 if what is pushed to the asker's process from here does not arrive.
const ASK: &str = r"
local told=ask(redis.call('GET',L),false,ARGV[1],ARGV[2],ARGV[3],ARGV[4],ARGV[5])
if (told[1]==0 or told[1]>4) and hears(ARGV[3])==false then told[4]=0 end
return told
";

/// `l`; value, and of another one what [`ASK`] takes; the least length of the queue's turn in µs if foreign clients were seen. Releases
/// the lock and asks for it for the other one; gives what `RELEASE` gives, and what `ASK` gives, or nothing if asking has
/// failed: the lock is released all the same.
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

/// `l`; value, ttl. Tells as `ASK` does that the lock is held, and takes nothing; our own is armed anew. Gives the note of a
/// holder of ours too, and an empty one for a foreign client; and nothing at all if the lock is free.
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

/// `l`; value. Without the mark it is the well-known compare-and-delete and nothing more.
const RELEASE: &str = r"
local L,me=KEYS[1],ARGV[1]
local v=redis.call('GET',L)
if v==me then return redis.call('DEL',L) end
if v~=me..' +line' then return 0 end
";

/// Names; values. Releases each as [`RELEASE`] does, but for those with the mark: 2, and nothing has changed.
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

/// `l`; value; the least length of the queue's turn in µs if foreign clients were seen.
const HAND_ON: &str = r"
hand_on(ARGV[2])
return 1
";

/// `l`; value, entry. The release of an owner that may also wait in the queue.
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

/// `l`; value, ttl. It never creates.
const RENEW: &str = r"
local v=redis.call('GET',KEYS[1])
if v==ARGV[1] or v==ARGV[1]..' +line' then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end
return 0
";

/// Names; value and ttl of each. Prolongs each as [`RENEW`] does.
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

/// `l`, fence; value, ttl, tokens, whether also while others wait. Gives 1 and the highest of the tokens, 0 for a lock that
/// is not ours any more, 2 while others wait.
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

/// Fence; the highest token that this process has seen. Run on every new connection: a restart or a failover always
/// breaks connections, so the counter is right again before the first grant, without a look at the clock in each.
const SEED: &str = r"
local t=redis.call('TIME')
local least=math.max(t[1]*1000000+t[2],tonumber(ARGV[1]))
local f=tonumber(redis.call('GET',KEYS[1]) or '0')
if not f then return 0 end
if f<least then redis.call('SET',KEYS[1],string.format('%.0f',least)) end
return 1
";

/// `l`, fence; value, the highest token seen. A new token for a lock that is already ours, after everything was flushed.
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
