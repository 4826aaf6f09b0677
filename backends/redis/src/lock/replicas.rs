//! `wait_replicas=n`: a grant counts once that many replicas have it.
//!
//! `WAIT` is no agreement. If a failover chooses a replica without the lock, the lock is lost. With as many
//! acknowledgements as there are replicas this cannot happen, until one of them restarts empty. A renewal does not wait
//! for replicas: after a failover a lock may end by the lease of its grant.

use std::time::Duration;

use ::redis::{Cmd, Value};
use dlock_contract::{Error, Hold, Result, Signal, Wake};
use futures::FutureExt;

use crate::cluster::keys::spread;
use crate::layout::units::millis;
use crate::lock::renew::renewal_of;
use crate::lock::store::Redis;
use crate::reply::fault;
use crate::scripts::call::{call, is_unknown_script};

impl Redis {
    /// Waits until replicas have the lock. If they do not get it, the engine releases the lock, as after every failure.
    /// A release from here could arrive late and free the next lock of the same owner.
    pub(crate) async fn replicated(&self, hold: Hold) -> Result<Hold> {
        let wanted = i64::from(self.connections.target.settings.wait_replicas);
        let limit = (hold.claim.ttl / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let shared = self.connections.here().await?;
        // WAIT looks at what its own connection has written, and the grant may have come over another: so it is armed
        // anew on this one.
        for whole in [false, true] {
            let (lua, build) = renewal_of(&hold.claim);
            let mut renew = call(lua, whole, &|command: &mut Cmd| build(command, &hold.claim));
            if self.connections.cluster().is_some() {
                renew = spread(&renew, lua)?;
            }
            let mut wait = Cmd::new();
            wait.arg("WAIT").arg(wanted).arg(millis(limit));
            let answers = self.connections.together(&shared, &hold.claim.key, [renew, wait]).await?;
            match &answers[..] {
                [unknown, _] if !whole && is_unknown_script(unknown) => {}
                [Value::Int(1), Value::Int(acknowledged)] if *acknowledged >= wanted => return Ok(hold),
                [Value::Int(1), Value::Int(acknowledged)] => {
                    return Err(Error::outage(format!(
                        "only {acknowledged} of {wanted} replicas had the lock within {limit:?}, so it is released (WAIT)"
                    )));
                }
                [Value::Int(0), _] => return Err(Error::outage("Redis forgot the lock at the moment it was granted")),
                [Value::Int(1), other] | [other, _] => return Err(fault::unexpected(other)),
                _ => return Err(fault::unexpected(&Value::Nil)),
            }
        }
        Err(Error::outage("Redis loses its scripts again and again: a client keeps running SCRIPT FLUSH"))
    }

    /// Turns a pushed grant into a reason to ask: nobody has waited for the replicas of that grant.
    pub(crate) fn as_hint(mut wake: Wake) -> Wake {
        wake.signal = wake.signal.map(|signal| -> futures::future::BoxFuture<'static, Result<Signal>> {
            // The hold that is dropped here is found again by its owner.
            Box::pin(signal.map(|news| news.map(|_| Signal::Ask)))
        });
        wake
    }
}
