//! The real `consul lock` beside ours. Go's library runs by `cargo xtask interop`.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dlock::{Key, LockKey};
use dlock_contract::{Backend, Claim, Mode, Queue, Released};
use dlock_testkit::holds::{claim_on, take, wait};
use dlock_testkit::servers::{self, shared};
use dlock_testkit::wait_until;

use crate::server::{LONG, Raw, SECOND, fresh, process};

/// `consul lock`, with a child that lives as long as a file is there.
struct Tool(Child, tempfile::TempDir);

impl Tool {
    fn start(prefix: &str, holders: u32) -> Self {
        let address = shared().consul().unwrap().replace("consul://", "http://");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("held");
        std::fs::write(&file, "").unwrap();
        let child = format!("while [ -e {} ]; do sleep 0.05; done", file.display());
        let mut command = Command::new(servers::Consul::program().unwrap());
        command.arg("lock").args(["-http-addr", &address, &format!("-n={holders}"), &format!("-name={prefix}")]);
        command.args(["-shell=false", prefix, "sh", "-c", &child]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), folder)
    }

    /// Ends the child; the tool then frees its lock.
    fn end(&mut self) {
        std::fs::remove_file(self.1.path().join("held")).unwrap();
        self.0.wait().unwrap();
    }

    /// Whether the tool has a session for this prefix.
    fn asks(raw: Raw, prefix: &str) -> bool {
        let sessions = raw.json("GET /v1/session/list");
        sessions.as_array().unwrap().iter().any(|session| session["Name"] == prefix)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // The child ends with its file; a tool that still waits for the lock would not end by itself.
        let _ = std::fs::remove_file(self.1.path().join("held"));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lock(prefix: &str) -> Arc<Claim> {
    claim_on(
        &LockKey::new("shop", Key::new().and_text("tools/").value(&prefix).and_text("/.lock")).unwrap(),
        LONG,
        |_| (),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_lock_keeps_ours_out_and_ours_keeps_it_out() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("tool"));
    let (prefix, claim) = (format!("tools/{id}"), lock(&id));
    let key = format!("{prefix}/.lock");
    let mut tool = Tool::start(&prefix, 1);
    wait_until("consul lock to get there", async || raw.holder(&key).is_some()).await.unwrap();
    let theirs = raw.holder(&key);
    assert!(matches!(store.try_acquire(&claim, Queue::Leave).await.unwrap(), dlock_contract::Attempt::Contended(_)));
    tool.end();
    let hold = wait(&store, &claim, SECOND * 20).await;
    assert_ne!(raw.holder(&key), theirs);
    let ours = raw.holder(&key);
    let mut second = Tool::start(&prefix, 1);
    // It stands there with a session of its own, and gets the lock only after our release.
    wait_until("consul lock to get there", async || Tool::asks(raw, &prefix)).await.unwrap();
    assert_eq!(raw.holder(&key), ours);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    wait_until("consul lock to get there", async || raw.holder(&key).is_some_and(|holder| Some(holder) != ours))
        .await
        .unwrap();
    second.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_lock_with_several_holders_shares_our_permits() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("tools"));
    let prefix = format!("tools/{id}");
    let key = LockKey::new("shop", Key::text("tools/").value(&id)).unwrap();
    let permit = || claim_on(&key, LONG, |claim| claim.mode = Mode::permits(2));
    let mut tool = Tool::start(&prefix, 2);
    let holders = || raw.ask(&format!("GET /v1/kv/{prefix}/.lock?raw")).unwrap_or_default().matches("true").count();
    wait_until("consul lock to get there", async || holders() == 1).await.unwrap();
    let first = take(&store, &permit()).await;
    assert_eq!(holders(), 2);
    let waiter = permit();
    assert!(matches!(store.try_acquire(&waiter, Queue::Leave).await.unwrap(), dlock_contract::Attempt::Contended(_)));
    tool.end();
    let second = wait(&store, &waiter, SECOND * 20).await;
    let mut third = Tool::start(&prefix, 2);
    wait_until("consul lock to get there", async || Tool::asks(raw, &prefix)).await.unwrap();
    assert_eq!(holders(), 2);
    store.release(&first).await.unwrap();
    wait_until("consul lock to get there", async || holders() == 2).await.unwrap();
    store.release(&second).await.unwrap();
    third.end();
}
