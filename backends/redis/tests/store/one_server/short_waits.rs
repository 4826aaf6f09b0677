//! A caller whose wait is short, while no further connection can be opened.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dlock::Clock;
use dlock::backends::redis::{Redis, Redisson};
use dlock_contract::{Attempt, Backend, Queue};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::{in_real_time, wait_until};
use tokio::net::{TcpListener, TcpStream};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

/// A way to a server. Once it is shut, further connections are accepted and get no answer.
#[derive(Default)]
struct Door {
    is_shut: AtomicBool,
    left_outside: AtomicUsize,
}

impl Door {
    async fn before(server: SocketAddr) -> io::Result<(Arc<Self>, SocketAddr)> {
        let (door, listener) = (Arc::<Self>::default(), TcpListener::bind("127.0.0.1:0").await?);
        let (shared, at) = (door.clone(), listener.local_addr()?);
        tokio::spawn(async move {
            let mut outside = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                if shared.is_shut.load(Ordering::SeqCst) {
                    outside.push(client);
                    shared.left_outside.store(outside.len(), Ordering::SeqCst);
                    continue;
                }
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok((door, at))
    }
}

/// On a slow network the connection for pushes takes longer than the caller waits. The store has said by then that another
/// owner holds the lock, so the caller must hear that and no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_a_short_wait_hears_of_the_holder_before_pushes_can_arrive() {
    let server = tokio::task::spawn_blocking(|| Instance::start(servers::Redis::default()).unwrap()).await.unwrap();
    for layout in ["", "?layout=redisson"] {
        let (door, at) = Door::before(server.addr()).await.unwrap();
        let (url, clock) = (format!("redis://{at}/{layout}"), Clock::manual());
        let store: Arc<dyn Backend> = match layout {
            "" => Arc::new(in_real_time(&clock, Redis::connect(&url, &clock)).await.unwrap()),
            _ => Arc::new(in_real_time(&clock, Redisson::connect(&url, &clock)).await.unwrap()),
        };
        in_real_time(&clock, take(&*store, &claim("k", LONG))).await;
        door.is_shut.store(true, Ordering::SeqCst);
        let queue = Queue::until(clock.now().after(400 * MS));
        let asking = tokio::spawn(async move { store.try_acquire(&claim("k", LONG), queue).await });
        let is_opening = async || door.left_outside.load(Ordering::SeqCst) > 0;
        wait_until("the connection for pushes is being opened", is_opening).await.unwrap();
        // Less than the caller waits.
        for _ in 0..30 {
            clock.advance(10 * MS);
            tokio::time::sleep(10 * MS).await;
        }
        let answer = tokio::time::timeout(LONG, asking).await.expect("nothing was told").unwrap();
        let Ok(Attempt::Contended(wake)) = answer else { panic!("{answer:?}") };
        assert!(wake.signal.is_none());
    }
}
