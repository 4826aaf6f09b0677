//! The commands of Redisson's `RLock`, step by step, in the same order, with a client id and a thread id of their own.

use std::time::Duration;

use dlock_contract::Owner;
use redis::{Connection, PubSub, Script};

use super::bench::Bench;

/// The default lease of Redisson's watchdog.
pub(crate) const WATCHDOG_MS: u64 = 30_000;

/// One thread of one Java service.
pub(crate) struct RLock {
    name: String,
    field: String,
    raw: Connection,
    url: String,
}

impl RLock {
    pub(crate) fn new(bench: &Bench) -> Self {
        let id = Owner::fresh().unwrap().to_hex();
        let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
        let field = format!("{}:42", parts.join("-"));
        Self { name: bench.name.clone(), field, raw: bench.raw(), url: bench.url.clone() }
    }

    fn channel(&self) -> String {
        format!("redisson_lock__channel:{{{}}}", self.name)
    }

    /// `tryLock`: `None` if it was granted, also to a holder that asks again; otherwise the time that is left of the
    /// lease.
    pub(crate) fn lock(&mut self, lease_ms: u64) -> Option<i64> {
        let script = "
            local free=redis.call('exists',KEYS[1])==0
            if free or redis.call('hexists',KEYS[1],ARGV[2])==1 then
              redis.call('hincrby',KEYS[1],ARGV[2],1)
              redis.call('pexpire',KEYS[1],ARGV[1])
              return nil
            end
            return redis.call('pttl',KEYS[1])";
        Script::new(script).key(&self.name).arg(lease_ms).arg(&self.field).invoke(&mut self.raw).unwrap()
    }

    /// `unlock`: 1 if the lock is free now, 0 if it is held once less; nothing if it was not held, which Java throws.
    pub(crate) fn unlock(&mut self) -> Option<i64> {
        let script = "
            if redis.call('hexists',KEYS[1],ARGV[3])==0 then return nil end
            if redis.call('hincrby',KEYS[1],ARGV[3],-1)>0 then
              redis.call('pexpire',KEYS[1],ARGV[2])
              return 0
            end
            redis.call('del',KEYS[1])
            redis.call('publish',KEYS[2],ARGV[1])
            return 1";
        let script = Script::new(script);
        let mut call = script.key(&self.name);
        call.key(self.channel()).arg(0).arg(WATCHDOG_MS).arg(&self.field).invoke(&mut self.raw).unwrap()
    }

    /// The watchdog's work at each third of the lease.
    pub(crate) fn renew(&mut self) -> bool {
        let script = "
            if redis.call('hexists',KEYS[1],ARGV[2])==0 then return 0 end
            redis.call('pexpire',KEYS[1],ARGV[1])
            return 1";
        Script::new(script).key(&self.name).arg(WATCHDOG_MS).arg(&self.field).invoke(&mut self.raw).unwrap()
    }

    /// A thread's work before it waits.
    pub(crate) fn subscribe<T>(&self, wait: impl FnOnce(&mut PubSub<'_>) -> T) -> T {
        let mut raw = redis::Client::open(&*self.url).unwrap().get_connection().unwrap();
        let mut pubsub = raw.as_pubsub();
        pubsub.subscribe(self.channel()).unwrap();
        wait(&mut pubsub)
    }

    /// Closes the connections of all subscribers.
    pub(crate) fn cut_listeners(&mut self) {
        let _: u64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query(&mut self.raw).unwrap();
    }

    /// How many connections listen to the lock's releases.
    pub(crate) fn listeners(&mut self) -> u64 {
        let channel = self.channel();
        let (_, count): (String, u64) = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(&mut self.raw).unwrap();
        count
    }
}

/// The next message, within so long.
pub(crate) fn message(pubsub: &mut PubSub<'_>, limit: Duration) -> Option<String> {
    pubsub.set_read_timeout(Some(limit)).unwrap();
    pubsub.get_message().ok().map(|message| message.get_payload().unwrap())
}
