//! The Lua of locks that several may hold: readers beside a writer, and permits.
//!
//! The keys of one lock:
//!
//! - `l`: its family, as a marker. The lease of the marker ends with the last of the other keys, so that every other
//!   use of the name meets the marker. Without the marker, the other keys do not count.
//! - `l:s`: its shares, a sorted set of owners by the end of their leases in µs.
//! - `l:h`: data of each share, a hash. An owner → mode, slot, first token, the process that it was handed to and that
//!   has not asked since (or `-`), note.
//! - `l:n`: the slots in use, a sorted set.
//! - `l:w`: its wait queue, a sorted set of entries by time of joining.
//! - `l:p`: the processes of the queue, a hash. A process → the end of its lease in ms. A waiter that cannot get pushes
//!   has a lease for its own place instead: owner → the end of the lease in ms. It gets the lock only by asking, and no
//!   neighbour may speak for a waiter that does not ask any more.

use std::sync::LazyLock;

use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;

/// Shared by all. `M` is the marker; modes are `r`, `w` and `p`.
const SHARES: &str = r"
local L,M,me=KEYS[1],ARGV[1],ARGV[2]
local S,H,N,W,P=L..':s',L..':h',L..':n',L..':w',L..':p'
local v=redis.call('GET',L)
local function part(o)
  return string.match(redis.call('HGET',H,o) or '','^(%a) (%d+) (%d+) (%S+) (.*)$')
end
local function put(o,ms,mode,slot,first,p,note)
  redis.call('ZADD',S,us+ms*1000,o)
  redis.call('HSET',H,o,table.concat({mode,slot,first,p,note},' '))
  if mode=='p' then redis.call('ZADD',N,slot,slot) end
end
-- Changes nothing; but a script that has written goes on without memory.
local function go_on()
  redis.call('ZREM',S,'')
end
local function drop(o)
  local mode,slot=part(o)
  redis.call('ZREM',S,o)
  redis.call('HDEL',H,o)
  if mode=='p' then redis.call('ZREM',N,slot) end
end
-- Writes only where there is something: whoever is new is refused for the lack of memory at its first write.
local function clear()
  if redis.call('EXISTS',L,S,H,N,W,P)>0 then redis.call('DEL',L,S,H,N,W,P) end
end
-- Ends the shares that have run out. A process that was handed one and stayed silent is not tried again.
local function prune()
  for _,o in ipairs(redis.call('ZRANGE',S,'-inf',us,'BYSCORE')) do
    local _,_,_,p=part(o)
    if p and p~='-' then redis.call('HDEL',P,p) end
    drop(o)
  end
end
-- The end of the lease that ends first (0) or last (-1), in ms from now.
local function left(which)
  local ends=redis.call('ZRANGE',S,which,which,'WITHSCORES')[2]
  return ends and math.max(math.ceil((ends-us)/1000),0)
end
-- Everything ends with what lasts longest, or now.
local function settle()
  local ms=left(-1)
  if redis.call('EXISTS',W)==1 then ms=math.max(ms or 0,3000) end
  if not ms then return clear() end
  redis.call('SET',L,M,'PX',ms+1)
  for _,k in ipairs({S,H,N,W,P}) do redis.call('PEXPIRE',k,ms+1) end
end
";

/// Shared by those that let somebody in.
const SERVE: &str = r"
local limit=tonumber(string.match(M,'%d+$') or '0')
local function reading()
  local first=redis.call('ZRANGE',S,0,0)[1]
  return first and string.sub(redis.call('HGET',H,first) or '',1,1)=='r'
end
local function fits(mode)
  local held=redis.call('ZCARD',S)
  if held==0 then return true end
  if mode=='p' then return held<limit end
  return mode=='r' and reading()
end
-- The lowest number that is free.
local function slot(mode)
  local low,high=0,mode=='p' and redis.call('ZCARD',N) or 0
  while low<high do
    local mid=math.floor((low+high)/2)
    if tonumber(redis.call('ZRANGE',N,mid,mid)[1])==mid then low=mid+1 else high=mid end
  end
  return low
end
local function grant(o,ms,mode,p,note,f)
  local s=slot(mode)
  put(o,ms,mode,s,string.format('%.0f',f),p,note)
  return f,s
end
-- Lets in the first of the line for as long as there is room. Gives the asker's token and slot, if it was among them.
local function serve(asker,ttl)
  local won,number
  while true do
    local e=redis.call('ZRANGE',W,0,0)[1]
    if not e then
      if redis.call('EXISTS',P)==1 then redis.call('DEL',P) end
      return won,number
    end
    local p,claim,mode,o,note=string.match(e,'^(%x+) (%d+) (%a) (%x+) (.*)$')
    local polls=redis.call('HGET',P,o)
    local gone=tonumber(polls or redis.call('HGET',P,p) or '0')*1000<=us
    if not gone and not fits(mode) then
      -- A writer that has died would keep readers out for as long as its place lasts.
      gone=mode=='w' and o~=asker and not polls and reading() and hears(p)==false
      if not gone then return won,number end
    elseif not gone and o==asker then
      won,number=grant(o,ttl,mode,'-',note,fence())
    elseif not gone and polls then
      return won,number
    elseif not gone then
      local f=fence()
      local text=string.format('%s %.0f %.0f %.0f %s %s %s %s',M,slot(mode),f,us,claim,L,o,note)
      gone=tell(p,text)==0
      if not gone then grant(o,claim,mode,p,note,f) end
    end
    redis.call('ZREM',W,e)
    if polls then redis.call('HDEL',P,o) elseif gone then redis.call('HDEL',P,p) end
  end
end
";

/// `l`; marker, owner, mode, ttl, note, process, ms of a pushed grant, lease of the place (0: none is wanted; below zero:
/// cannot be pushed to). Gives 1 and the token, 0 and the lease left, 2 for another use of the name; the server's time
/// in µs; the slot; and 0 if what is pushed to the asker's process from here does not arrive.
const ASK: &str = r"
local mode,ttl,note,p,claim,place=ARGV[3],ARGV[4],ARGV[5],ARGV[6],ARGV[7],tonumber(ARGV[8])
if v and v~=M then return {2,0,us,0} end
if not v then
  if redis.call('EXISTS',L..':q')==1 then
    local waiting=redis.call('HGETALL',L..':a')
    for i=1,#waiting,2 do
      if waiting[i]~='?' and waiting[i+1]*1000>us then return {2,0,us,0} end
    end
  end
  clear()
end
prune()
if redis.call('ZSCORE',S,me) then
  local _,slot,first=part(me)
  go_on()
  put(me,ttl,mode,slot,first,'-',note)
  settle()
  return {1,fence(),us,tonumber(slot)}
end
if place~=0 and (redis.call('EXISTS',W)==1 or not fits(mode)) then
  local e=table.concat({p,claim,mode,me,note},' ')
  if redis.call('ZSCORE',W,e) then go_on() else redis.call('ZADD',W,us,e) end
  if place>0 then redis.call('HDEL',P,me) end
  redis.call('HSET',P,place>0 and p or me,math.floor(us/1000)+math.abs(place))
end
local f,s=serve(me,ttl)
if not f and redis.call('EXISTS',W)==0 and fits(mode) then f,s=grant(me,ttl,mode,'-',note,fence()) end
settle()
if f then return {1,f,us,s} end
local told={0,left(mode=='w' and -1 or 0) or 0,us,left(0) or 0}
if place>0 and hears(p)==false then told[5]=0 end
return told
";

/// `l`; marker, owner, ms for which the share stays taken, entry of the queue or nothing.
const END: &str = r"
if not v then clear() end
if v~=M then return 0 end
prune()
local keep,ours=tonumber(ARGV[3]),redis.call('ZSCORE',S,me)
if ours then
  local mode,slot,first,_,note=part(me)
  drop(me)
  -- Nobody's, until it ends.
  if keep>0 then put('kept:'..me,keep,mode,slot,first,'-',note) end
end
-- Also where no entry is: a script that has written goes on without memory.
if redis.call('ZREM',W,ARGV[4])==1 then redis.call('HDEL',P,me) end
serve()
local e=keep>0 and redis.call('ZRANGE',W,0,0)[1]
if e then
  local p,o=string.match(e,'^(%x+) %d+ %a (%x+)')
  tell(p,'ask '..o..' ')
end
settle()
return ours and 1 or 0
";

/// `l`; marker, owner, ttl. It never creates.
const RENEW: &str = r"
local ends=redis.call('ZSCORE',S,me)
if v~=M or not ends or tonumber(ends)<=us then return 0 end
go_on()
local mode,slot,first,p,note=part(me)
if p=='-' then redis.call('ZADD',S,us+ARGV[3]*1000,me) else put(me,ARGV[3],mode,slot,first,'-',note) end
settle()
return 1
";

/// `l`, marker, owner; fence, the highest token seen. As the exclusive lock's `REPAIR`.
const REPAIR: &str = r"
if v~=M or not redis.call('ZSCORE',S,me) then return 0 end
local f=tonumber(redis.call('GET',F) or '0') or 0
f=math.max(f,us,tonumber(ARGV[3]))+1
redis.call('SET',F,string.format('%.0f',f))
return f
";

/// The scripts, with their digests.
pub(crate) struct SharedScripts {
    pub(crate) ask: Lua,
    pub(crate) end: Lua,
    pub(crate) renew: Lua,
    pub(crate) repair: Lua,
}

pub(crate) static SHARED_SCRIPTS: LazyLock<SharedScripts> = LazyLock::new(|| SharedScripts {
    ask: Lua::new(&[CLOCK, SHARES, SERVE, ASK]),
    end: Lua::new(&[CLOCK, SHARES, SERVE, END]),
    renew: Lua::new(&[CLOCK, SHARES, RENEW]),
    repair: Lua::new(&[CLOCK, SHARES, REPAIR]),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::limits::SHARED_PLACE_LEASE;

    #[test]
    fn the_constants_are_those_of_the_scripts() {
        assert!(SHARES.contains(&format!("math.max(ms or 0,{SHARED_PLACE_LEASE})")));
    }
}
