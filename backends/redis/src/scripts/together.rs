//! The Lua that takes several locks, all or none.

use std::sync::LazyLock;

use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;
use crate::scripts::queue::BESIDE;

/// Names, with the counter after the first one; value and ttl of each. Gives the tokens, or 0 if one of the locks is
/// neither free nor held by its asker. A value that is no string counts as taken: a request for this lock alone gets
/// the error.
const TAKE_ALL: &str = r"
local count=#ARGV/2
local function name(i) return KEYS[i==1 and 1 or i+1] end
local ours={}
for i=1,count do
  local l,me=name(i),ARGV[2*i-1]
  local v=redis.pcall('GET',l)
  if type(v)=='table' and not string.find(v.err,'^WRONGTYPE') then return v end
  ours[i]=v==me or v==me..' +line'
  -- An abandoned line counts as one, too: who asks alone tidies it.
  if not ours[i] and (v or redis.call('EXISTS',beside(l)..':q')==1) then return 0 end
end
-- Before anything is taken: a counter that cannot be raised is an error.
local tokens={}
for i=1,count do tokens[i]=fence() end
for i=1,count do
  if ours[i] then
    redis.call('PEXPIRE',name(i),ARGV[2*i])
  else
    redis.call('SET',name(i),ARGV[2*i-1],'PX',ARGV[2*i])
  end
end
return tokens
";

pub(crate) static TOGETHER: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[CLOCK, BESIDE, TAKE_ALL]).on(Some(&[":q"])));
