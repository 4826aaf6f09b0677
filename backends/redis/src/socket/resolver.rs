//! Host name look-ups for the client of a cluster, which opens its connections by itself.

use std::net::SocketAddr;
use std::sync::Arc;

use ::redis::RedisFuture;
use ::redis::io::AsyncDNSResolver;
use dlock_contract::engine::Names;

/// For the client of a cluster, which opens its connections by itself.
pub(crate) struct Resolver(pub(crate) Arc<Names>);

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let addresses = self.0.addresses(host, port).await?;
            Ok(Box::new(addresses.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::lock::store::Redis;
    use crate::topology::target::Target;
    use crate::url::form::FORM;
    use dlock_contract::{Address, Clock};
    use std::io;

    static BEGUN: AtomicUsize = AtomicUsize::new(0);

    fn hangs(_: &str) -> io::Result<Vec<SocketAddr>> {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }

    /// The application's threads stay free: its pool has one.
    #[test]
    fn a_look_up_that_hangs_is_begun_once_for_each_name_of_a_store() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        for (url, names) in [
            ("redis://name.invalid", 1),
            ("redis-sentinel://a.invalid,b.invalid,c.invalid/main", 3),
            ("redis-cluster://a.invalid,b.invalid", 2),
        ] {
            let before = BEGUN.load(Ordering::SeqCst);
            let names_of_store = Arc::new(Names::by(hangs));
            runtime.block_on(async {
                let clock = Clock::system();
                for _ in 0..20 {
                    let target = Target::of(&Address::parse(url, &FORM).unwrap(), &names_of_store).unwrap();
                    let end = clock.now().after(Duration::from_millis(20));
                    assert!(clock.timeout_at(end, Redis::open(target, &clock)).await.is_none(), "{url}");
                }
                let free = tokio::task::spawn_blocking(|| 1);
                let end = clock.now().after(Duration::from_secs(10));
                clock.timeout_at(end, free).await.expect("the application's thread is taken").unwrap();
            });
            assert_eq!(BEGUN.load(Ordering::SeqCst) - before, names, "{url}");
        }
    }
}
