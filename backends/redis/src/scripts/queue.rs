//! The Lua of the wait queue: who is next, and whether it is the turn of foreign clients. Each script that touches the
//! queue begins with one of these parts.
//!
//! A foreign client that polls under a literal name has no place in the queue, and never finds a lock free that is handed on.
//! So if one was seen, a release gives way now and then: the lock is free, and no waiter of the queue takes it until the
//! turn is over. A release says whether the server must look; see `queue::foreign_clients`.

/// The prefix of the keys that belong to a lock: its own name, or a name of dlock's if its own is literal. All are in one
/// hash slot.
macro_rules! beside {
    () => {
        r"
local function beside(l)
  if string.sub(l,1,4)=='dl1:' then return l end
  return string.find(l,'{',1,true) and 'dl1:t:'..l or 'dl1:l:{'..l..'}'
end
"
    };
}

/// The function alone.
pub const BESIDE: &str = beside!();

/// Shared by the scripts that may hand the lock on; after `CLOCK`, with `L`.
pub const ADVANCE: &str = concat!(
    beside!(),
    r"
local B=beside(L)
local Q,A=B..':q',B..':a'
-- The process that was handed the lock last and has not asked since, and its owner; and when the turn of foreign clients ends.
local function handed()
  local text=redis.call('HGET',A,'?') or ''
  local p,o=string.match(text,'^(%x+) (%x+)$')
  return p,o,tonumber(string.match(text,'^! (%d+)$') or '0')
end
local function set_handed(p,value) redis.pcall('HSET',A,'?',p..' '..string.sub(value,1,32)) end
-- Gives the lock to the first in line that lives: its fence if that is the asker, who stands there too; 0 and its claim if
-- another one; false if nobody, and then what stands there is for the caller to replace. Once it is given nothing fails
-- any more: it would be taken away from one who believes in it. Who has asked by a release of its process may be silent
-- since.
local function advance(asker,ttl,freed)
  while true do
    local e=redis.call('ZPOPMIN',Q)[1]
    if not e then
      redis.call('DEL',A)
      return false
    end
    local p,claim,value=string.match(e,'^(%x+) (%d+) (.*)$')
    local more=asker and value~=asker or redis.call('EXISTS',Q)==1
    local kept=more and value..' +line' or value
    if value==asker then
      local f=fence()
      redis.call('SET',L,kept,'PX',ttl)
      if not more then redis.pcall('DEL',A) elseif freed then set_handed(p,value) else redis.pcall('HDEL',A,'?') end
      return f
    end
    if tonumber(redis.call('HGET',A,p) or '0')*1000>us then
      local f=fence()
      local news=string.format('%.0f %.0f %s %s %s',f,us,claim,L,value)
      -- Written before it is told: nobody shall believe in a lock that could not be written.
      redis.call('SET',L,kept,'PX',claim)
      if tell(p,news)>0 then
        if more then set_handed(p,value) else redis.pcall('DEL',A) end
        return 0,claim
      end
      -- Nobody listens there any more: its other entries need no trial.
      redis.pcall('HDEL',A,p)
    end
  end
end
-- For how many ms more the turn that ends then is the foreign clients'. A clock that was set back makes none longer.
local function turn(ends)
  local left=ends-us
  return left>0 and left<=250000 and math.ceil(left/1000)
end
-- What is noted of foreign clients: when their last turn began and ended, when one was seen last, and of the hold that was found
-- then since when it has been known, all in µs, and when its lease ends, in ms; and how much time they were owed, in µs,
-- when that turn began.
local function noted()
  local text=redis.call('GET',B..':x') or ''
  local began,ended,seen,since,lease,owed=string.match(text,'^(%d+) (%d+) (%d+) (%d+) (%d+) (-?%d+)$')
  return tonumber(began or '0'),tonumber(ended or '0'),tonumber(seen or '0'),tonumber(since or '0'),
    tonumber(lease or '0'),tonumber(owed or '0')
end
-- Notes it, under a name of ours.
local function note(began,ended,seen,since,lease,owed)
  local text=string.format('%.0f %.0f %.0f %.0f %.0f %.0f',began,ended,seen,since,lease,owed)
  redis.pcall('SET',B..':x',text,'PX','60000')
end
-- Is it the foreign clients' turn, after one of ours of so many µs at least? If so, when one was seen last, and what they are owed.
-- Our time makes them creditors, theirs pays it back. So both sides have the same time in the long run, whatever a single
-- turn comes to. Seldom, where none was seen in the last few turns. Where none was ever seen, as often as the asker says.
local function due(ours)
  local began,ended,seen,_,_,owed=noted()
  if us-seen>=3000000 then
    return us-ended>(seen==0 and ours>250000 and ours or 2000000) and seen
  end
  owed=math.max(-250000,math.min(owed+(us-ended)-(ended-began),250000))
  return us-ended>math.min(ours,250000) and owed>=5000 and seen,owed
end
-- Frees the lock and gives the foreign clients their turn; returns its end. If a foreign client was seen lately, the turn lasts for the
-- time that they are owed. A hold of theirs may go on when it ends, and counts. Otherwise the turn lasts as long as a poller
-- may sleep. If none was ever seen, a short turn finds out. The first in line is told, since it must ask when the turn ends.
local function give_way(seen,owed)
  redis.call('DEL',L)
  local theirs=owed or us-seen<60000000 and 250000 or 30000
  local ends=us+math.floor(theirs)
  note(us,ends,seen,0,0,owed or 0)
  redis.pcall('HSET',A,'?',string.format('! %.0f',ends))
  redis.pcall('PEXPIRE',A,'30000')
  local e=redis.pcall('ZRANGE',Q,0,0)[1]
  if e then
    local p,o=string.match(e,'^(%x+) %d+ (%x+)')
    tell(p,'ask '..o..' ')
  end
  return ends
end
-- Frees a lock for which others wait. One that cannot be handed on is free all the same, and they find out by asking. Where
-- foreign clients were seen, `ours` is how long a turn of the line lasts at least.
local function hand_on(ours)
  ours=tonumber(ours or '')
  local seen,owed
  if ours and redis.call('EXISTS',Q)==1 then seen,owed=due(ours) end
  if seen then
    give_way(seen,owed)
    return
  end
  local done,given=pcall(advance)
  if not (done and given) then redis.call('DEL',L) end
end
"
);

/// Shared by the scripts that ask for the lock or else for a place in its wait queue; after [`ADVANCE`].
pub(crate) const ASKING: &str = r"
-- Does the asker find out for the others when the foreign clients have gone? The first in line does. It asks again within 200 ms,
-- so if it has not asked for 450 ms, the next asker takes its part: a process that was killed or stopped there would keep
-- all others from looking. The foreign clients' lock is the first one's all the same, if it lives.
local function finds_out(e)
  local me=string.match(e,'^%x+ %d+ (%x+)')
  local who,asks_by=string.match(redis.call('HGET',A,'@') or '','^(%x+) (%d+)$')
  local left=tonumber(asks_by or '0')-us
  local first=redis.call('ZRANGE',Q,0,0)[1]==e or who==me or left<0 or left>450000
  if first then redis.pcall('HSET',A,'@',string.format('%s %.0f',me,us+450000)) end
  return first
end
-- Of the lock's present value and, if it was freed just now, when the turn ends that foreign clients were given; value, entry,
-- process, ttl and lease of the place of the asker.
local function ask(v,freed,me,e,p,ttl,lease)
  if v==me or v==me..' +line' then
    redis.call('PEXPIRE',L,ttl)
    return {1,fence(),us}
  end
  local left,own,silent,o,ends,since
  if v then
    left,own=taken(L,v)
    if not left then return own end
    -- A foreign client frees what it has by its value, and tells nobody.
    if own and string.sub(v,-6)~=' +line' then redis.call('SET',L,v..' +line','KEEPTTL') end
    -- The process that was handed it lives: should that hold run out, its other places stay. Or it was silent until that
    -- hold ran out, and a newcomer was faster than the line.
    silent,o,ends=handed()
    if not own then
      local began,ended,_,known,lease,owed=noted()
      -- Another end of the lease is another hold. The two clocks are read one after the other.
      local now=math.floor(us/1000)+left
      since=math.abs(now-lease)<=2 and known or us
      -- It took the lock outside of a turn: from now on that is their time, but not what was before.
      if ends==0 and since==us then began=began+us-ended end
      note(began,turn(ends) and ends or us,us,since,since==us and now or lease,owed)
    end
    if silent and o~=string.sub(v,1,32) then redis.call('HDEL',A,silent,'?') end
    if silent==p then redis.call('HDEL',A,'?') end
  else
    -- The lock ended without a release: who was handed it and stayed silent is not tried again.
    ends=freed
    if not freed then silent,o,ends=handed() end
    if silent then redis.call('HDEL',A,silent,'?') end
    left=turn(ends)
    if ends>0 and not left then
      -- The foreign clients' turn is over, with the last of their holds.
      local began,_,seen,known,lease,owed=noted()
      note(began,us,seen,known,lease,owed)
    end
    if not left and redis.call('EXISTS',Q)==0 then
      redis.call('SET',L,me,'PX',ttl)
      return {1,fence(),us}
    end
  end
  -- Without memory nobody joins, but who stands here already goes on: a script that has written is not refused.
  local placed=redis.pcall('ZADD',Q,'NX',us,e)
  if type(placed)=='table' and not tonumber(redis.pcall('ZSCORE',Q,e)) then redis.call('ZADD',Q,'NX',us,e) end
  -- Whatever happens to those who stand here, the line itself does not outlive them for long.
  redis.call('PEXPIRE',Q,'30000')
  redis.call('HSET',A,p,math.floor(us/1000)+lease)
  redis.call('PEXPIRE',A,'30000')
  if v and own then return {0,left,us,1,string.sub(v,34)} end
  if left then
    -- When it is not the foreign clients' turn, the first one has to find the moment between two of their holds, so it looks the
    -- more often the shorter the present one has been there. In a turn to find out who is there it looks all the time.
    local soon=v and (turn(ends) or math.floor((us-since)/32000))
    local place=finds_out(e) and 5 or 6
    -- Nobody is known to be there: a turn to find out.
    if not v and select(3,noted())==0 then
      place=place+2
      soon=1
    end
    return {place,left,us,soon and math.max(soon,1)}
  end
  local f,claim=advance(me,ttl,freed)
  if f>0 then return {1,f,us} end
  return {0,tonumber(claim),us}
end
";
