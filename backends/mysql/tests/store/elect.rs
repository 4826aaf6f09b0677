//! Leadership over states of the server that pass.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock::{Leader, Registry};
use dlock_testkit::wait_until;

use crate::server::{Database, Kind};

const TTL: Duration = Duration::from_secs(2);

mod alone {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_candidate_goes_on_after_mariadb_was_read_only() {
        super::goes_on(super::Kind::MariaDb, &["read_only"]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_candidate_goes_on_after_mysql_was_read_only_or_offline() {
        super::goes_on(super::Kind::MySql, &["read_only", "offline_mode"]).await;
    }
}

/// Counts down when its body is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn goes_on(kind: Kind, settings: &[&str]) {
    let server = tokio::task::spawn_blocking(move || kind.start()).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "elect").await;
    // One that may do everything may write in spite of the setting.
    let url = database.account_with(&[("SELECT, INSERT, UPDATE, CREATE", "*")]).await;
    let registry = Registry::new();
    registry.connect("rows", &url).await.unwrap();
    registry.set_default("rows").unwrap();
    let (begun, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (begun.clone(), running.clone());
    let candidate = tokio::spawn(registry.elect("billing").ttl(TTL).lead(async move |_: Leader| {
        counts.0.fetch_add(1, Ordering::SeqCst);
        counts.1.fetch_add(1, Ordering::SeqCst);
        let _running = Running(counts.1.clone());
        pending::<()>().await;
    }));
    for (number, setting) in settings.iter().enumerate() {
        let leads = async || begun.load(Ordering::SeqCst) > number && running.load(Ordering::SeqCst) == 1;
        wait_until("it leads", leads).await.unwrap();
        database.change(&format!("SET GLOBAL {setting} = 1")).await;
        let ended = async || running.load(Ordering::SeqCst) == 0;
        wait_until("its leadership ends", ended).await.unwrap();
        // Campaigns that the server refuses.
        tokio::time::sleep(2 * TTL).await;
        assert!(!candidate.is_finished(), "{setting}: it has given up: {:?}", candidate.await);
        database.change(&format!("SET GLOBAL {setting} = 0")).await;
    }
    let leads = async || begun.load(Ordering::SeqCst) > settings.len() && running.load(Ordering::SeqCst) == 1;
    wait_until("it leads again", leads).await.unwrap();
    candidate.abort();
}
