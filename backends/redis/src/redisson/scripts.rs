//! The Lua of Redisson's layout. Each script does what Redisson's own does, and keeps our note beside it.

use std::sync::LazyLock;

use crate::connections::pool::HIGH_STEP;
use crate::layout::token::{LEAST_TOKEN, TOKEN_END};
use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;
use crate::scripts::queue::BESIDE;

/// `l`; field, ttl, note, the highest token seen. Gives 1 and the token, 0 and the lease left, 2 for a hash without a
/// lease, 4 and a token that cannot be one, and then nothing was taken.
const TAKE: &str = r"
local me,ttl=ARGV[1],ARGV[2]
if redis.call('EXISTS',L)==1 and not redis.call('HGET',L,me) then
  local left=redis.call('PTTL',L)
  if left<0 then return {2,0} end
  return {0,left}
end
local f,high=fence(),tonumber(ARGV[4])
-- Never below the clock, nor behind what this process has seen: the counter was forgotten, or the clock was set back.
if f<us or f+STEP<=high then
  f=math.max(us,high)
  redis.call('SET',F,string.format('%.0f',f))
end
if f<LEAST or f>=END then return {4,f} end
-- The note before the lock: what an account may not do, it hears while nothing is taken.
redis.call('SET',beside(L)..':note',me..' '..ARGV[3],'PX',ttl)
-- Not counted up: whoever asks twice shall have to release once.
redis.call('HSET',L,me,1)
local armed=redis.pcall('PEXPIRE',L,ttl)
if type(armed)=='table' and armed.err then
  redis.call('HDEL',L,me)
  return armed
end
return {1,f}
";

/// `l`; field, channel. The message comes first: an account that may not send it must hear of that while the lock is
/// held.
const RELEASE: &str = r"
if not redis.call('HGET',L,ARGV[1]) then return 0 end
redis.call('PUBLISH',ARGV[2],'0')
redis.call('DEL',L,beside(L)..':note')
return 1
";

/// Names; field and ttl of each. It never creates.
const RENEW_ALL: &str = r"
local done={}
for i,l in ipairs(KEYS) do
  local v=redis.pcall('HGET',l,ARGV[2*i-1])
  if type(v)=='table' and v.err and not string.find(v.err,'^WRONGTYPE') then return v end
  if type(v)=='string' then
    redis.call('PEXPIRE',beside(l)..':note',ARGV[2*i])
    done[i]=redis.call('PEXPIRE',l,ARGV[2*i])
  else
    done[i]=0
  end
end
return done
";

/// `l`. Gives nothing if nobody holds the lock, else its lease and the note, if the holder is one of ours.
const HOLDER: &str = r"
if redis.call('EXISTS',L)==0 then return false end
local field,note=string.match(redis.call('GET',beside(L)..':note') or '','^(%S+) (.*)$')
if redis.call('HGET',L,field or '') then return {1,redis.call('PTTL',L),note or ''} end
return {0,redis.call('PTTL',L),''}
";

/// Channel. Whether the account may publish on it. The server is asked, and nothing is published.
const MAY_TELL: &str = r"
return redis.acl_check_cmd('publish',ARGV[1],'0') and 1 or 0
";

/// The scripts, with their digests.
pub(crate) struct RedissonScripts {
    pub(crate) take: Lua,
    pub(crate) release: Lua,
    pub(crate) renew_all: Lua,
    pub(crate) holder: Lua,
    pub(crate) may_tell: Lua,
}

pub(crate) static SCRIPTS: LazyLock<RedissonScripts> = LazyLock::new(|| {
    let limits = format!("local LEAST,END,STEP={LEAST_TOKEN},{TOKEN_END},{HIGH_STEP}");
    let on_one = "local L=KEYS[1]";
    RedissonScripts {
        take: Lua::new(&[on_one, CLOCK, BESIDE, &limits, TAKE]),
        release: Lua::new(&[on_one, BESIDE, RELEASE]),
        renew_all: Lua::new(&[BESIDE, RENEW_ALL]),
        holder: Lua::new(&[on_one, BESIDE, HOLDER]),
        may_tell: Lua::new(&[MAY_TELL]),
    }
});
