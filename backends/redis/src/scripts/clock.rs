//! The part of a script that reads the server's clock and draws fencing tokens.

/// The server's time, the next token, and what others' values come to.
///
/// In a cluster the counter is the slot's, and is passed in. No connection is ours to seed it on, and after a failover it
/// may be an old one: there it is never below the clock.
pub const CLOCK: &str = r"
local t=redis.call('TIME')
local us=t[1]*1000000+t[2]
local F=KEYS[2] or 'dl1:fence'
local least=KEYS[2] and us or 1125899906842624
local function fence()
  -- In quotes, as elsewhere: to print a number costs the server more than the command itself.
  local f=redis.call('INCRBY',F,'1')
  -- Everything was flushed: begin again above all that was given before.
  if f<least then
    f=us
    redis.call('SET',F,string.format('%.0f',f))
  end
  return f
end
local function channel(p)
  return KEYS[2] and 'dl1:p:'..p..':'..string.match(F,'{.*') or 'dl1:p:'..p
end
-- Does the process hear from this server? Nil where the account may not ask.
local function hears(p)
  local counted=redis.pcall('PUBSUB',KEYS[2] and 'SHARDNUMSUB' or 'NUMSUB',channel(p))
  return counted[2] and counted[2]>0
end
-- Pushes to a process; gives how many connections have heard it: none where the account may not publish. Nothing is
-- pushed to one that is not here: what is published goes to the replicas too, and who listens there is not counted, but
-- would believe it.
local function tell(p,news)
  return hears(p) and tonumber(redis.pcall(KEYS[2] and 'SPUBLISH' or 'PUBLISH',channel(p),news)) or 0
end
-- The lease of a value that is not the asker's, and whether it is a lock of dlock's, whose notes all begin so; else the
-- refusal. Under a literal name
-- a foreign client may have one, if it ends by itself.
local function taken(l,v)
  local own=string.match(v,'^[0-9a-f]+ ()h=')==34
  local left=(own or string.sub(l,1,4)~='dl1:') and redis.call('PTTL',l) or -1
  if left>=0 then return left,own end
  return nil,{own and 3 or 2,0,us}
end
";
