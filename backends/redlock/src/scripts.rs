//! The Lua that is Redlock's own; renewals and releases are those of the single server.
//!
//! The value under a lock's name is the single server's, with the round at its end: `<owner> <note> @<round>`. What
//! comes late, over a connection that was given up, then finds another round and leaves it alone.

use std::sync::LazyLock;

use dlock_redis::internal::LOOK;
use dlock_redis::internal::scripts::{ADVANCE, BESIDE, CLOCK, Lua};

/// With [`CLOCK`]; as the seventh argument, whether this is the first request over its connection since the node has a
/// vote. One that was restarted without its data then counts above what it gave before, whatever the others' clocks say.
const RAISE: &str = r"
if ARGV[7]=='1' then
  local f=tonumber(redis.call('GET',F) or '0')
  if f and f<us then redis.call('SET',F,string.format('%.0f',us)) end
end
";

/// With [`CLOCK`]: whatever ends by itself is a lock, also one of a foreign client under a name of ours.
const ANY_LEASE: &str = r"
local judge=taken
taken=function(l,v)
  local left=redis.call('PTTL',l)
  if left>=0 then return left end
  return judge(l,v)
end
";

/// `l`; value, ttl. The same owner from an earlier round goes on as this one. A round never gives way to an earlier
/// one, whose release may come right behind it; that is answered by 4, and nothing has changed.
const SAME_OWNER: &str = r"
local function round(v)
  return tonumber(string.match(v,' @(%x+)$') or string.match(v,' @(%x+) %+line$') or '0',16)
end
local old=redis.call('GET',L)
if old and string.sub(old,1,33)==string.sub(ARGV[1],1,33) then
  if round(ARGV[1])<round(old) then return {4,0,us} end
  redis.call('SET',L,string.sub(old,-6)==' +line' and ARGV[1]..' +line' or ARGV[1],'KEEPTTL')
end
";

/// After [`BESIDE`] and [`LOOK`]; process, for how many µs a waiter is remembered or 0 if the asker does not wait, whether
/// the process has had its share of holds, whether it may be noted as a waiter. `:o` beside the name has the processes that
/// wait, each with the time until which that counts. It is part of no decision about the lock but this: a process that had
/// its share does not take a free lock from them. It is none of them itself: two that had their share would leave the lock to each
/// other for ever.
const OTHERS: &str = r"
local W,P,remembered=beside(L)..':o',ARGV[3],tonumber(ARGV[4])
local function waits()
  if ARGV[5]=='1' then
    redis.pcall('ZREM',W,P)
  elseif remembered>0 then
    redis.pcall('ZADD',W,us+remembered,P)
    redis.pcall('PEXPIRE',W,math.floor(remembered/1000))
  end
end
if not v and ARGV[5]=='1' then
  local others=redis.call('ZRANGE',W,us,'+inf','BYSCORE','LIMIT',0,2)
  if others[1] and others[1]~=P or others[2] then
    waits()
    return {0,0,us,''}
  end
end
if v then waits() elseif ARGV[6]=='1' then redis.pcall('ZREM',W,P) end
";

/// Gives 1 and the number drawn; 0, the lease left, the time, and who has it without saying whose owner that is; 2 for a
/// foreign value without a lease, 3 for one of ours; and [`SAME_OWNER`]'s 4. [`OTHERS`]' 0 names nobody.
const TAKE: &str = r"
if v then return {0,left,us,redis.sha1hex(string.sub(v,1,32))} end
redis.call('SET',L,me,'PX',ttl)
return {1,fence(),us}
";

/// `l`, fence; value, token. Raises the counter only if this owner still holds the lock. So the next holder on this node
/// draws a higher token.
const CONFIRM: &str = r"
local v=redis.call('GET',KEYS[1])
if v~=ARGV[1] and v~=ARGV[1]..' +line' then return 0 end
local f=tonumber(redis.call('GET',KEYS[2]) or '0') or 0
if f<tonumber(ARGV[2]) then redis.call('SET',KEYS[2],ARGV[2]) end
return 1
";

/// `l`; owner and process. For any round. A wait queue that other clients have made is served.
const ABANDON: &str = r"
local owner=string.sub(ARGV[1],1,32)
redis.call('ZREM',B..':o',string.sub(ARGV[1],33))
local v=redis.call('GET',L)
if not v or string.sub(v,1,33)~=owner..' ' then return 0 end
if string.sub(v,-6)==' +line' then hand_on() else redis.call('DEL',L) end
return 1
";

pub(super) struct Scripts {
    pub(super) take: Lua,
    pub(super) confirm: Lua,
    pub(super) abandon: Lua,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    take: Lua::new(&["local L=KEYS[1]", CLOCK, RAISE, ANY_LEASE, SAME_OWNER, BESIDE, LOOK, OTHERS, TAKE]),
    confirm: Lua::new(&[CONFIRM]),
    abandon: Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, ABANDON]),
});

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_redis::internal::scripts::MARK;

    #[test]
    fn the_constants_are_those_of_the_single_server() {
        assert!([SAME_OWNER, CONFIRM, ABANDON].iter().all(|text| text.contains(&format!("'{MARK}'"))));
        assert!(SAME_OWNER.contains(&format!("string.sub(old,-{})", MARK.len())));
    }
}
