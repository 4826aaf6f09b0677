//! Claims that ask for more than a plain exclusive lock: in order, once per period, of another mode.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Mode, Result, Stand, Wake};

use super::acquire::{as_array, poll};
use super::connection::on;
use super::fault;
use super::layout::{self, Name};
use super::scripts::{ADVANCE, CLOCK, Lua};
use super::store::Redis;
use super::units::millis;

/// Can plain commands serve it?
pub(super) fn is_plain(claim: &Claim) -> bool {
    claim.mode == Mode::Exclusive && !claim.fair && claim.once_per.is_none()
}

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

/// Takes a free lock, but not from those who stand in its line.
pub(super) const TAKE: &str = r"
if v then return {0,left,us} end
local silent,_,ends=handed()
if silent then redis.call('HDEL',A,silent,'?') end
if turn(ends) then return {0,turn(ends),us} end
if redis.call('EXISTS',Q)==1 and advance() then return {0,redis.call('PTTL',L),us} end
redis.call('SET',L,me,'PX',ttl)
";

static TRY: LazyLock<Lua> =
    LazyLock::new(|| Lua::new(&["local L=KEYS[1]", CLOCK, ADVANCE, LOOK, TAKE, "return {1,fence(),us}"]));

impl Redis {
    pub(super) async fn attempt_with_options(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        match (claim.mode, claim.once_per.as_deref()) {
            (Mode::Exclusive, Some(once)) => self.ask_for_run(claim, *once).await,
            (Mode::Exclusive, None) => self.ask_in_order(claim, stand).await,
            (_, None) => self.ask_for_share(claim, stand).await,
            (_, Some(_)) => Err(Error::config("once_per", "one start per period needs an exclusive lock")),
        }
    }

    /// Straight to the line: the plain commands may overtake it once, after a holder's death.
    async fn ask_in_order(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        let standing = matches!(stand, Stand::Until(_));
        if self.places.has(&claim.owner) {
            return self.ask_from_place(claim).await;
        }
        if standing && (self.pushes.is_up(&claim.key) || self.pushes.come_up(&claim.key).await) {
            return self.ask_line(claim).await;
        }
        let sent = self.clock.now();
        let high = self.connections.high();
        let shared = self.connections.here().await?;
        let answer = self
            .connections
            .script(&shared, &TRY, |command| {
                on(command, Name(&claim.key)).arg(layout::Value(claim)).arg(millis(claim.ttl));
            })
            .await?;
        let attempt = self.read_answer(claim, &answer, high, sent).await?;
        Ok(match attempt {
            // Who cannot hear of a release asks often.
            Attempt::Contended(wake) if standing => Attempt::Contended(wake.ask_by(sent.after(poll()))),
            other => other,
        })
    }

    /// The answer of a script that gives no place in line.
    pub(super) async fn read_answer(
        &self,
        claim: &Arc<Claim>,
        answer: &Value,
        high: u64,
        sent: BootInstant,
    ) -> Result<Attempt> {
        let [Value::Int(outcome), second, _] = as_array(answer)? else { return Err(fault::unexpected(answer)) };
        match (outcome, second) {
            (1, token) => self.granted(claim, token, high, sent, None).await.map(Attempt::Acquired),
            (0, Value::Int(left)) => {
                let left = Duration::from_millis(u64::try_from(*left).unwrap_or_default());
                Ok(Attempt::Contended(Wake::poll().ask_by(sent.after(left)).lease_left(left)))
            }
            (2, _) => Err(layout::conflict()),
            (3, _) => Err(Error::new(ErrorKind::CorruptState, "the lock in Redis has no lease, so it would never end")),
            (4, _) => Ok(Attempt::AlreadyRun),
            _ => Err(fault::unexpected(answer)),
        }
    }
}
