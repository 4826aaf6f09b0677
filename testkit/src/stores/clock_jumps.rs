//! Jumps of a server's wall clock while locks are held, for stores that do not count by it.

use std::time::{Duration, Instant};

use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_store::Clock;

use super::holds::{claim, confirm, take};
use crate::servers::Instance;
use crate::{Mode, Proxy, lateness};

const HOUR: i64 = 3600;

/// Of the lock whose holder lives, and of the one whose holder is cut off.
const TTLS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3)];

/// Sets the clock an hour ahead, two hours back, and right again. Each time one lock is held by a client that renews, and one by
/// a client that is cut off. Fails if the first lock is lost or has two holders, or if the other one is free before the end of
/// its ttl or later than the store promises.
///
/// `open` opens a client at a port of this machine. `jump` sets the clock this many seconds ahead of the machine's, and
/// fails unless the server follows it.
pub async fn no_jump_moves_the_end_of_a_lock<S: Backend>(
    server: &Instance,
    open: impl AsyncFn(u16) -> S,
    jump: impl AsyncFn(i64),
) {
    lateness::watch();
    for ahead in [HOUR, -HOUR, 0] {
        let proxy = Proxy::start(server.addr()).unwrap();
        let (one, cut) = (open(server.port()).await, open(proxy.port()).await);
        let held = take(&one, &claim("held", TTLS[0])).await;
        let left = take(&cut, &claim("left", TTLS[1])).await;
        proxy.set(Mode::Refuse);
        let cut_off = Instant::now();
        jump(ahead).await;
        let promised = one.profile().takeover(TTLS[1]);
        let next = loop {
            let renewed = confirm(&one, &held).await;
            assert!(
                matches!(renewed, Standing::Renewed(_)),
                "a jump to {ahead} s lost a lock that is renewed: {renewed:?}"
            );
            let second = one.try_acquire(&claim("held", TTLS[0]), Queue::Leave).await.unwrap();
            assert!(matches!(second, Attempt::Contended(_)), "a jump to {ahead} s let a second holder in: {second:?}");
            if let Attempt::Acquired(next) = one.try_acquire(&claim("left", TTLS[1]), Queue::Leave).await.unwrap() {
                break next;
            }
            let what = format!("after a jump to {ahead} s a dead holder's lock is held");
            lateness::assert_within(promised + Duration::from_secs(1), cut_off, &what);
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(Clock::system().now() >= left.validity.deadline(), "a jump to {ahead} s ended a lock before its ttl");
        for hold in [&held, &next] {
            assert_eq!(one.release(hold).await.unwrap(), Released::Released);
        }
        one.close().await;
    }
}
