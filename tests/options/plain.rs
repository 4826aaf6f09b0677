//! A store that can only exclude: it refuses exactly the options that need more.

use std::sync::Arc;

use dlock::backends::memory::Memory;
use dlock::{Error, ErrorKind, LockKey, LockState, distributed_lock};
use dlock_contract::{Attempt, Backend, Claim, Fencing, Health, Hold, Profile, Queue, Released, Standing};
use futures::future::BoxFuture;

struct Plain {
    inner: Memory,
    profile: Profile,
}

impl Plain {
    fn new() -> Self {
        let inner = Memory::new();
        let profile = inner.profile().clone().with(|plain| {
            plain.kind = "plain";
            plain.fencing = Fencing::None;
            (plain.read_write, plain.permits, plain.fair) = (false, false, false);
        });
        Self { inner, profile }
    }
}

impl Backend for Plain {
    fn profile(&self) -> &Profile {
        &self.profile
    }
    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt, Error>> {
        self.inner.try_acquire(claim, queue)
    }
    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing, Error>>> {
        self.inner.renew(holds)
    }
    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released, Error>> {
        self.inner.release(hold)
    }
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.abandon(claim)
    }
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, Error>> {
        self.inner.look(key)
    }
    fn ready(&self) -> BoxFuture<'_, Result<Health, Error>> {
        self.inner.ready()
    }
}

#[distributed_lock(key = "plain:fence", fence = token, backend = store)]
async fn fence(store: &str) -> Result<(), Error> {
    let _: u64 = token.get();
    Ok(())
}

#[distributed_lock(key = "plain:read", mode = read, backend = store)]
async fn read(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "plain:permits", mode = permits(3), backend = store)]
async fn permits(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "plain:fair", fair, backend = store)]
async fn fair(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "plain:min_hold", min_hold = "1s", backend = store)]
async fn min_hold(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "plain:once_per", once_per = "1m", backend = store)]
async fn once_per(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "plain", guard = held, reentrant, on_lost = continue, timeout = "5s", backend = store)]
async fn what_needs_no_store(store: &str) -> Result<(), Error> {
    held.check()
}

#[tokio::test]
async fn an_option_is_refused_exactly_if_the_store_cannot_do_it() {
    crate::stores::installed();
    dlock::install("plain", Plain::new()).unwrap();
    for end in [
        fence("plain").await,
        read("plain").await,
        permits("plain").await,
        fair("plain").await,
        min_hold("plain").await,
        once_per("plain").await,
    ] {
        let error = end.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && error.attempts() == 0, "{error}");
    }
    what_needs_no_store("plain").await.unwrap();
}
