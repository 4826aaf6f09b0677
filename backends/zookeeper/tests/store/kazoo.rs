//! The real kazoo, in a process of its own, on the same paths.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dlock::{Key, LockKey, Mode};
use dlock_contract::{Attempt, Backend, Queue, Signal};
use dlock_testkit::holds::{claim_on, stand, take};

use crate::kit::{TTL, claim, line, open, raw, shared};

/// A program that uses kazoo.
struct Kazoo {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Kazoo {
    /// `extra` is a pattern of other tools' nodes that it waits for.
    fn start(path: &str, extra: &str) -> Self {
        // Debian's, for which `cargo xtask servers` installs kazoo.
        let mut command = Command::new("/usr/bin/python3");
        let hosts = shared().replace("zk://", "");
        command.args(["-c", include_str!("kazoo.py"), &hosts, path, extra]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is missing");
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, orders, answers: BufReader::new(answers) }
    }

    fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn end(&mut self) -> bool {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        match answer.trim_end() {
            "yes" => true,
            "no" => false,
            other => panic!("kazoo answered {other:?}; `cargo xtask servers` installs it"),
        }
    }

    fn does(&mut self, order: &str) -> bool {
        self.begin(order);
        self.end()
    }
}

impl Drop for Kazoo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn place() -> (String, LockKey) {
    let name = format!("n{}", fastrand::u64(..));
    (format!("/kazoo/{name}"), LockKey::new("t", Key::text("/kazoo/").value(&name)).unwrap())
}

#[tokio::test]
async fn kazoos_lock_and_ours_exclude_each_other_and_stand_in_one_line() {
    let raw = raw(&shared()).await;
    for (layout, extra) in [("kazoo", ""), ("curator", "-lock-")] {
        let store = open(&format!("{}?keys=literal&layout={layout}", shared())).await.unwrap();
        let (path, key) = place();
        let mut theirs = Kazoo::start(&path, extra);
        assert!(theirs.does("lock 0"));
        assert!(matches!(store.try_acquire(&claim(&key), Queue::Leave).await.unwrap(), Attempt::Contended(_)));
        let waiter = claim(&key);
        let mut wake = stand(&store, &waiter).await;
        assert!(theirs.does("free"));
        let Signal::Granted(hold) = wake.signal.as_mut().unwrap().await.unwrap() else { panic!() };
        assert!(!theirs.does("lock 0"), "{layout}: kazoo took a lock that is ours");
        theirs.begin("lock 30");
        while line(&raw, &path).await.len() < 2 {
            tokio::task::yield_now().await;
        }
        store.release(&hold).await.unwrap();
        assert!(theirs.end() && theirs.does("free"));
        assert!(line(&raw, &path).await.is_empty());
    }
}

#[tokio::test]
async fn kazoos_readers_and_writers_and_ours_share_one_line() {
    let store = open(&format!("{}?keys=literal&layout=kazoo", shared())).await.unwrap();
    let (path, key) = place();
    let of = |mode| claim_on(&key, TTL, |claim| claim.mode = mode);
    let mut theirs = Kazoo::start(&path, "");
    let ours = take(&store, &of(Mode::Read)).await;
    assert!(theirs.does("read 0"), "two readers");
    assert!(theirs.does("free") && !theirs.does("write 0"), "a writer beside a reader");
    store.release(&ours).await.unwrap();
    let ours = take(&store, &of(Mode::Write)).await;
    assert!(!theirs.does("read 0") && !theirs.does("write 0"), "beside our writer");
    store.release(&ours).await.unwrap();
    assert!(theirs.does("write 0"));
    for mode in [Mode::Read, Mode::Write] {
        let refused = store.try_acquire(&of(mode), Queue::Leave).await.unwrap();
        assert!(matches!(refused, Attempt::Contended(_)), "{mode:?} beside kazoo's writer");
    }
    assert!(theirs.does("free") && theirs.does("read 0"));
    let beside = take(&store, &of(Mode::Read)).await;
    store.release(&beside).await.unwrap();
    assert!(theirs.does("free"));
}
