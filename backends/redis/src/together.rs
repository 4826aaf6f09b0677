//! Several plain locks in one script, all or none; in a cluster only where all of them lie in one slot.

use std::sync::{Arc, LazyLock};

use ::redis::Value;
use dlock_contract::{Claim, Error, Result, Together};

use super::fault;
use super::layout::{self, Name};
use super::options::is_plain;
use super::scripts::{BESIDE, CLOCK, FENCE, Lua};
use super::store::Redis;
use super::topology::slots::slot_of;
use super::units::millis;

/// So many at most; more would hold up everybody else's commands.
const MOST: usize = 100;

/// Names, with the counter after the first one; value and ttl of each. Gives the tokens, or 0 if one of the locks is
/// neither free nor its asker's own. What is no string counts as taken: who asks for that one alone is told.
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

pub(super) static SCRIPT: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[CLOCK, BESIDE, TAKE_ALL]).on(Some(&[":q"])));

impl Redis {
    pub(super) async fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        if !self.takes_together(claims) {
            return Ok(Together::OneByOne);
        }
        claims.iter().for_each(|claim| self.connections.guards.asks_for(claim.ttl));
        let shared = self.connections.here().await.map_err(Error::never_sent)?;
        let Some(first) = claims.first() else { return Ok(Together::OneByOne) };
        // In a cluster they are all of one slot.
        self.connections.admit(&first.key).await?;
        let high = self.connections.high();
        let from = self.clock.now();
        let answer = self
            .connections
            .script(&shared, &SCRIPT, |command| {
                command.arg(claims.len() + 1);
                for (number, claim) in claims.iter().enumerate() {
                    command.arg(Name(&claim.key));
                    if number == 0 {
                        command.arg(FENCE);
                    }
                }
                for claim in claims {
                    command.arg(layout::Value(claim)).arg(millis(claim.ttl));
                }
            })
            .await?;
        let tokens = match answer {
            Value::Int(0) => return Ok(Together::Contended),
            // A slot on its way from server to server: nothing has run.
            Value::Nil => return Ok(Together::OneByOne),
            Value::Array(tokens) if tokens.len() == claims.len() => tokens,
            other => return Err(fault::unexpected(&other)),
        };
        // What the server has forgotten meanwhile may be somebody's; the core abandons what was taken.
        self.connections.admit(&first.key).await?;
        let mut holds = Vec::with_capacity(claims.len());
        for (claim, token) in claims.iter().zip(&tokens) {
            holds.push(self.granted(claim, token, high, from, None).await?);
        }
        Ok(Together::Acquired(holds))
    }

    /// Can these be asked for in one script, and is it worth a try?
    fn takes_together(&self, claims: &[Arc<Claim>]) -> bool {
        let now = self.clock.now();
        let Some(first) = claims.first() else { return false };
        let slot = self.connections.cluster().map(|_| slot_of(&first.key));
        (2..=MOST).contains(&claims.len())
            // Each grant is waited for by itself.
            && self.connections.target.settings.wait_replicas == 0
            && claims.iter().all(|claim| {
                is_plain(claim)
                    // Who was seen there lately holds it still, or stands in its line.
                    && !self.contended.is(&claim.key, now)
                    && slot.is_none_or(|slot| slot_of(&claim.key) == slot)
            })
    }
}
