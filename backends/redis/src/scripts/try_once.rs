//! The Lua that asks for a lock but takes no place in its wait queue.

use std::sync::LazyLock;

use crate::scripts::clock::CLOCK;
use crate::scripts::lua::Lua;
use crate::scripts::queue::ADVANCE;

/// `l`; value, ttl. Looks at the present value.
pub const LOOK: &str = r"
local me,ttl=ARGV[1],ARGV[2]
local v=redis.call('GET',L)
if v==me or v==me..' +line' then
  redis.call('PEXPIRE',L,ttl)
  return {1,fence(),us}
end
local left=0
if v then
  local refusal
  left,refusal=taken(L,v)
  if not left then return refusal end
end
";

/// Takes a free lock, but not from the waiters of its queue.
pub(crate) const TAKE: &str = r"
if v then return {0,left,us} end
local silent,_,ends=handed()
if silent then redis.call('HDEL',A,silent,'?') end
if turn(ends) then return {0,turn(ends),us} end
if redis.call('EXISTS',Q)==1 and advance() then return {0,redis.call('PTTL',L),us} end
redis.call('SET',L,me,'PX',ttl)
";

pub(crate) static TRY: LazyLock<Lua> =
    LazyLock::new(|| Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, LOOK, TAKE, "return {1,fence(),us}"]));
