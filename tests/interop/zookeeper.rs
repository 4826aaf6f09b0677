//! Real clients of ZooKeeper: Curator's locks in Java and kazoo's in Python.

use std::process::Command;
use std::time::Instant;

use dlock::backends::zookeeper::client::{Acls, Client, CreateMode};
use dlock::{Key, Mode, Registry, Wait};
use dlock_contract::Owner;
use dlock_testkit::servers::shared;

use crate::foreign::{Foreign, Seen, built};
use crate::{LONG, MS, SECOND};

const SECONDS: u32 = 5;
/// Theirs. Each has a place in the wait queue of its own, and our process has one.
const THREADS: &str = "4";

/// One lock or one lock with readers, counted under by both sides.
#[derive(Clone, Copy)]
enum Kind {
    Lock,
    ReadWrite,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::ReadWrite => "readwrite",
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_and_ours_take_turns_and_lose_no_count() {
    for kind in [Kind::Lock, Kind::ReadWrite] {
        count_together("curator", kind, |hosts, path, counter| {
            let tree = built("curator");
            let classes = format!("{}:{}/*", tree.root().join("classes").display(), tree.root().join("lib").display());
            let mut command = Command::new("java");
            command.args(["-cp", &classes, "Curator", hosts, path, counter, kind.word(), THREADS]);
            command.arg(SECONDS.to_string());
            command
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoo_and_ours_take_turns_and_lose_no_count() {
    // In Curator's layout kazoo's lock waits for our nodes if it is told their pattern. Kazoo's readers are left out: a reader of
    // kazoo 2.8 waits also for a writer that came after it, and the two block each other, also without dlock.
    for (layout, extra, kind) in
        [("kazoo", "", Kind::Lock), ("kazoo", "", Kind::ReadWrite), ("curator", "-lock-", Kind::Lock)]
    {
        count_together(layout, kind, |hosts, path, counter| {
            // Debian's, for which `cargo xtask servers` installs kazoo.
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", include_str!("zookeeper/kazoo_locks.py"), hosts, path, counter, extra]);
            command.args([THREADS, &SECONDS.to_string(), kind.word()]);
            command
        })
        .await;
    }
}

/// Both sides take one lock for some seconds. Each hold, and each hold of a writer, counts up one number, by a read and a
/// write, so two holders at a time would lose a count. Readers see the number stand still.
async fn count_together(layout: &str, kind: Kind, theirs: impl FnOnce(&str, &str, &str) -> Command) {
    let url = shared().zookeeper().unwrap();
    let hosts = url.strip_prefix("zk://").unwrap();
    let id = Owner::fresh().unwrap().to_hex();
    let counter = format!("/count-{id}");
    let raw = Client::connect(hosts).await.unwrap();
    raw.create(&counter, b"0", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let registry = Registry::new();
    registry.connect("zookeeper", &format!("{url}?keys=literal&layout={layout}")).await.unwrap();
    registry.set_default("zookeeper").unwrap();
    let theirs = Foreign::start(theirs(hosts, &format!("/jobs/{id}"), &counter));
    let end = Instant::now() + SECOND * SECONDS;
    let tasks: Vec<_> = (0..4)
        .map(|_| tokio::spawn(take(registry.clone(), raw.clone(), kind, id.clone(), counter.clone(), end)))
        .collect();
    let mut holds = 0;
    for task in tasks {
        holds += task.await.unwrap();
    }
    let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
    println!("{layout}, {}: ours {holds}, {theirs:?}", kind.word());
    let Seen { holds: others, failures } = theirs;
    assert_eq!(number(&raw, &counter).await, holds + others);
    assert!(failures == 0 && holds > 10 && others > 10, "one side hardly ever had the lock");
}

async fn take(registry: Registry, raw: Client, kind: Kind, id: String, counter: String, end: Instant) -> u64 {
    let lock = |mode| registry.lock(Key::text("/jobs/").value(&id)).mode(mode).ttl(LONG).wait(Wait::UpTo(LONG));
    let mut holds = 0;
    while Instant::now() < end {
        let alone = match kind {
            Kind::Lock => Mode::Exclusive,
            Kind::ReadWrite => {
                let guard = lock(Mode::Read).acquire().await.unwrap();
                let before = number(&raw, &counter).await;
                tokio::time::sleep(MS).await;
                assert_eq!(number(&raw, &counter).await, before, "a writer beside a reader");
                guard.release().await.unwrap();
                Mode::Write
            }
        };
        let guard = lock(alone).acquire().await.unwrap();
        let before = number(&raw, &counter).await;
        tokio::time::sleep(MS).await;
        raw.set_data(&counter, (before + 1).to_string().as_bytes(), None).await.unwrap();
        guard.release().await.unwrap();
        holds += 1;
        tokio::time::sleep(MS).await;
    }
    holds
}

async fn number(raw: &Client, counter: &str) -> u64 {
    let (data, _) = raw.get_data(counter).await.unwrap();
    std::str::from_utf8(&data).unwrap().parse().unwrap()
}
