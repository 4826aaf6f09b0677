//! Waiters of other users, and a user who may watch no further file.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dlock::Clock;
use dlock::backends::sqlite::Sqlite;
use dlock_contract::{Backend, Released};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim, stand, take, wait};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_uid};

use crate::store::{Store, TTL, url};
use crate::users::as_several;
use crate::wakes::{LIMIT, say, woken};

/// In a child with a user name space of its own, in which the kernel counts anew.
#[test]
fn a_user_with_too_many_watches_polls_and_is_told_so() {
    let store = Store::on_real_time();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c"]);
    command.arg(r#"echo 1 > /proc/sys/user/max_inotify_watches && exec "$0" "$@""#);
    command.arg(std::env::current_exe().unwrap());
    command.args(["child_main", "--exact", "--nocapture", "--test-threads=2"]);
    command.env("URL", store.url()).env("DLOCK_CHILD", "one watch");
    let ended = Child::of(command).unwrap().wait_line("done", LIMIT);
    ended.expect(
        "without unshare, or user name spaces: apt-get install util-linux, sysctl kernel.unprivileged_userns_clone=1",
    );
}

/// The child's part.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn wait_with_one_watch() {
    let (url, clock) = (std::env::var("URL").unwrap(), Clock::system());
    let (one, other) = (Sqlite::open(&url, &clock).await.unwrap(), Sqlite::open(&url, &clock).await.unwrap());
    let (first, second) = (take(&one, &claim("a", TTL)).await, take(&one, &claim("b", TTL)).await);
    let watched = stand(&other, &claim("a", TTL)).await;
    assert!(other.ready().await.unwrap().findings.is_empty());
    let waiter = claim("b", TTL);
    let wake = stand(&other, &waiter).await;
    assert!(wake.signal.is_none(), "the kernel watches two files");
    assert!(wake.ask_by.unwrap().since(clock.now()) <= Duration::from_millis(50));
    let findings = other.ready().await.unwrap().findings;
    assert!(findings.len() == 1 && findings[0].contains("max_user_watches"), "{findings:?}");
    assert_eq!(one.release(&second).await.unwrap(), Released::Released);
    wait(&other, &waiter, LIMIT).await;
    assert_eq!(one.release(&first).await.unwrap(), Released::Released);
    woken(watched).await;
    say("done");
    std::process::exit(0);
}

#[test]
fn users_who_share_a_file_wake_each_other() {
    as_several("wake_limits::users_who_share_a_file_wake_each_other", share_a_file);
}

#[tokio::main(flavor = "current_thread")]
async fn share_a_file() {
    let store = Store::on_real_time();
    std::fs::write(store.path(), "").unwrap();
    open_to_all(store.folder.path(), 0o777);
    open_to_all(&store.path(), 0o666);
    let url = format!("{}?shared=allow", url(&store.path()));
    let one = Sqlite::open(&url, &store.clock).await.unwrap();
    let hold = take(&one, &claim("a", TTL)).await;
    let mut child = Child::spawn("another user", &[("URL", &url)]).unwrap();
    child.wait_line("waits", LIMIT).unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    child.wait_line("has it", LIMIT).unwrap();
    let wake = stand(&one, &claim("a", TTL)).await;
    assert!(one.ready().await.unwrap().findings.is_empty());
    std::fs::write(store.folder.path().join("go"), "").unwrap();
    woken(wake).await;
    child.wait_line("done", LIMIT).unwrap();
}

fn open_to_all(path: &Path, bits: u32) {
    set_permissions(path, Permissions::from_mode(bits)).unwrap();
}

/// The child's part. It changes the user here, since another user may not start this program; each thread from here on has
/// this one.
pub(crate) fn wait_as_another_user() {
    set_thread_gid(Gid::from_raw(54_321)).unwrap();
    set_thread_uid(Uid::from_raw(54_321)).unwrap();
    let url = std::env::var("URL").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sqlite::open(&url, &Clock::system()).await.unwrap();
        let waiter = claim("a", TTL);
        let wake = stand(&store, &waiter).await;
        say("waits");
        woken(wake).await;
        let hold = take(&store, &waiter).await;
        say("has it");
        let path = url.trim_start_matches("sqlite://").replace("locks.db?shared=allow", "go");
        while !Path::new(&path).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        say("done");
    });
    std::process::exit(0);
}
