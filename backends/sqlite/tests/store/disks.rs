//! Disks that are full, read-only or silent, processes that are killed in the middle of a commit, and files that go away.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim, confirm, stand, take, token};

use crate::store::{Store, TTL, url};

const FOLDER: &str = "DLOCK_TEST_FOLDER";

/// In a child with a file system of its own. It needs no root where the kernel lets an ordinary user make one.
#[test]
fn a_full_disk_loses_nothing_and_a_read_only_one_is_refused() {
    in_child("disks", r#"mount -t tmpfs -o size=1m,mode=700 tmpfs "$0" && exec "$@""#);
}

/// It mounts a file system of FUSE, which not every container lets a user do.
mod thorough {
    /// The thread of a caller may be the only one of its runtime.
    #[test]
    fn a_folder_of_wakes_whose_disk_is_silent_blocks_no_thread_of_the_callers() {
        super::in_child("silent disk", r#"exec "$@""#);
    }
}

/// Runs the child of this role, by this script.
fn in_child(role: &str, script: &str) {
    let store = Store::on_real_time();
    let folder = store.folder.path();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-c", script]).arg(folder);
    command.arg(env::current_exe().unwrap()).args(["child_main", "--exact", "--nocapture", "--test-threads=2"]);
    command.env(FOLDER, folder).env("DLOCK_CHILD", role);
    let ended = Child::of(command).unwrap().wait_line("done", Duration::from_secs(60));
    ended.expect(
        "without unshare, or user name spaces: apt-get install util-linux, sysctl kernel.unprivileged_userns_clone=1",
    );
}

/// The child's part.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn fill_the_disk() {
    let folder = PathBuf::from(env::var(FOLDER).unwrap());
    let path = folder.join("locks.db");
    a_full_disk_is_told_and_loses_nothing(&folder, &path).await;
    let remount = |how: &str| {
        let remounted = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&folder).status().unwrap();
        assert!(remounted.success());
    };
    remount("ro");
    let error = Sqlite::open(&url(&path), &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(!error.is_retryable(), "{error}");
    remount("rw");
    let store = Sqlite::open(&url(&path), &Clock::system()).await.unwrap();
    take(&store, &claim("a", TTL)).await;
    println!("done");
}

/// The child's part.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn wait_beside_a_silent_disk() {
    let folder = PathBuf::from(env::var(FOLDER).unwrap());
    let path = folder.join("locks.db");
    let open = async || Sqlite::open(&url(&path), &Clock::system()).await.unwrap();
    let (one, other) = (open().await, open().await);
    take(&one, &claim("a", TTL)).await;
    // The kernel watches for this key from here on.
    let waiter = claim("a", TTL);
    drop(stand(&other, &waiter).await);
    other.abandon(&waiter).await.unwrap();
    // A file system that never answers, until this process ends.
    let fuse = File::options().read(true).write(true).open("/dev/fuse").expect("it needs the kernel's module fuse");
    let user = rustix::process::geteuid().as_raw();
    let options = format!("fd=0,rootmode=40000,user_id={user},group_id=0");
    let mut mount = Command::new("mount");
    mount.args(["-i", "-t", "fuse", "-o", &options, "none"]).arg(folder.join("locks.db-dlock-wake"));
    assert!(mount.stdin(fuse.try_clone().unwrap()).status().unwrap().success());
    let asking = tokio::spawn(async move { stand(&other, &waiter).await });
    // It reaches the folder within a moment.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asking.is_finished(), "the disk has answered: nothing is proven");
    println!("done");
    std::process::exit(0);
}

async fn a_full_disk_is_told_and_loses_nothing(folder: &Path, path: &Path) {
    let store = Sqlite::open(&url(path), &Clock::system()).await.unwrap();
    let hold = take(&store, &claim("held", TTL)).await;
    let mut filler = File::create(folder.join("filler")).unwrap();
    let mut size = 4096;
    while size > 0 {
        if filler.write_all(&vec![0; size]).is_err() {
            size /= 2;
        }
    }
    // The write-ahead log has room that it was given before.
    let mut told = None;
    for number in 0..1000 {
        match store.try_acquire(&claim(&number.to_string(), TTL), Queue::Leave).await {
            Ok(Attempt::Acquired(_)) => {}
            Ok(answer) => panic!("nobody has the lock {number}: {answer:?}"),
            Err(error) => {
                told = Some((number, error));
                break;
            }
        }
    }
    let (number, error) = told.expect("no lock needed room");
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    assert!(error.is_retryable() && error.to_string().contains("disk"), "{error}");
    // Unknown, or renewed, and never lost.
    assert!(!matches!(store.renew(&[&hold]).await.remove(0), Ok(Standing::Lost)));
    drop(filler);
    fs::remove_file(folder.join("filler")).unwrap();
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    let next = take(&store, &claim(&number.to_string(), TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    store.close().await;
}

#[tokio::test]
async fn a_process_that_is_killed_in_a_commit_leaves_a_whole_file_and_its_tokens() {
    let store = Store::on_real_time();
    let folder = store.folder.path().to_str().unwrap().to_owned();
    let mut last = 0;
    for round in 0..8 {
        let mut child = Child::spawn("commits", &[(FOLDER, &folder)]).unwrap();
        // Another moment in each round.
        for _ in 0..=round * 3 {
            last = child.wait_line("token ", Duration::from_secs(30)).unwrap().parse().unwrap();
        }
        child.kill9().unwrap();
        assert_eq!(store.ask("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'").await, 1);
        let one = store.open().await;
        let hold = take(&one, &claim("parent", TTL)).await;
        assert!(token(&hold) > last, "the token {} was given again after {last}", token(&hold));
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    }
}

/// The child's part: commits without an end.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn commit_for_ever() {
    let path = PathBuf::from(env::var(FOLDER).unwrap()).join("locks.db");
    let store = Sqlite::open(&url(&path), &Clock::system()).await.unwrap();
    for number in 0_u64.. {
        let hold = take(&store, &claim(&format!("{} {}", std::process::id(), number % 5), TTL)).await;
        println!("token {}", token(&hold));
        store.release(&hold).await.unwrap();
    }
}
