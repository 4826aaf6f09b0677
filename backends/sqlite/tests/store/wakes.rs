//! Waiters that the kernel wakes. Nothing in the store polls, so a signal that ends was told by a release.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock::{Clock, HoldId, Mode};
use dlock_contract::{Attempt, Backend, BreakRecord, Released, RunEnd, Signal, Wake, WakeStyle};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim, stand, take, until};
use futures::FutureExt;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::store::{Store, TTL, mode_claim, permits, run_claim};

/// The bound of a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn woken(wake: Wake) {
    let signal = wake.signal.expect("the kernel does not wake this waiter");
    let news = tokio::time::timeout(LIMIT, signal).await.expect("no release was heard");
    assert!(matches!(news.unwrap(), Signal::Ask));
}

fn folder(store: &Store) -> PathBuf {
    store.folder.path().join("locks.db-dlock-wake")
}

#[tokio::test]
async fn a_release_in_another_process_wakes_a_waiter() {
    let store = Store::on_real_time();
    let other = store.open().await;
    assert_eq!(other.profile().wake, WakeStyle::Hint);
    let go = store.folder.path().join("go");
    let mut child = Child::spawn("wakes", &[("URL", &store.url()), ("GO", &go.display().to_string())]).unwrap();
    child.wait_line("held", LIMIT).unwrap();
    let waiter = claim("a", TTL);
    let wake = stand(&other, &waiter).await;
    std::fs::write(&go, "").unwrap();
    woken(wake).await;
    take(&other, &waiter).await;
}

/// It ends at once after its release, as a small program does.
pub(crate) fn release_in_child() {
    let (url, go) = (std::env::var("URL").unwrap(), PathBuf::from(std::env::var("GO").unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sqlite::open(&url, &Clock::system()).await.unwrap();
        let hold = take(&store, &claim("a", TTL)).await;
        say("held");
        while !go.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        store.release(&hold).await.unwrap();
    });
    std::process::exit(0);
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

#[tokio::test]
async fn every_end_of_a_hold_wakes() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    for mode in [Mode::Exclusive, Mode::Write, permits(1)] {
        let waiter = mode_claim(mode);
        let hold = take(&one, &mode_claim(mode)).await;
        let wake = stand(&other, &waiter).await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        woken(wake).await;

        let hold = take(&one, &mode_claim(mode)).await;
        let wake = stand(&other, &waiter).await;
        one.abandon(&hold.claim).await.unwrap();
        woken(wake).await;

        let hold = take(&one, &mode_claim(mode)).await;
        let wake = stand(&other, &waiter).await;
        let record = BreakRecord::new("alice", 1, "test");
        let broken = one.inspect().unwrap().break_hold(&hold.claim.key, HoldId::of(&hold.claim.owner), &record);
        assert!(broken.await.unwrap());
        woken(wake).await;

        let hold = take(&one, &mode_claim(mode)).await;
        let wake = stand(&other, &waiter).await;
        let kept = one.keeps().unwrap().keep(&hold, Duration::from_millis(1), None);
        assert_eq!(kept.await.unwrap(), Released::Released);
        woken(wake).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let hold = take(&one, &run_claim(Duration::from_secs(3600), false)).await;
    let wake = stand(&other, &claim("a", TTL)).await;
    assert_eq!(one.periods().unwrap().end_run(&hold, RunEnd::Failed).await.unwrap(), Released::Released);
    woken(wake).await;
}

#[tokio::test]
async fn a_writer_that_stops_waiting_wakes_the_readers_behind_it() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    take(&one, &mode_claim(Mode::Read)).await;
    let writer = mode_claim(Mode::Write);
    stand(&one, &writer).await;
    let wake = stand(&other, &mode_claim(Mode::Read)).await;
    one.abandon(&writer).await.unwrap();
    woken(wake).await;
}

/// A store that watches for the first time, while the lock is freed: the waiter is woken, or has the lock at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_before_the_watch_is_not_missed() {
    let store = Store::on_real_time();
    let one = std::sync::Arc::new(store.open().await);
    let (mut waited, mut acquired) = (0, 0);
    // The release comes about when the watch begins, which this machine decides.
    let mut latest = 1500;
    for _ in 0..100 {
        let other = store.open().await;
        let hold = take(&*one, &claim("a", TTL)).await;
        assert!(crate::store::is_held(&other, "a").await);
        let releaser = one.clone();
        let release = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..latest))).await;
            releaser.release(&hold).await.unwrap();
        });
        let waiter = claim("a", TTL);
        match other.try_acquire(&waiter, until()).await.unwrap() {
            Attempt::Acquired(_) => {
                acquired += 1;
                latest = (latest * 2).min(100_000);
            }
            Attempt::Contended(wake) => {
                waited += 1;
                latest = (latest / 2).max(100);
                woken(wake).await;
                take(&other, &waiter).await;
            }
            Attempt::AlreadyRun => panic!("a claim without a period"),
        }
        release.await.unwrap();
        other.abandon(&waiter).await.unwrap();
    }
    assert!(waited > 5, "{waited} waited, {acquired} had it at once: nothing is proven");
}

/// Events arrive in order: a wake that had not come before the last one was never sent.
#[tokio::test]
async fn keys_of_other_side_files_are_not_woken() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    let mut wake = stand(&other, &claim("a", TTL)).await;
    let files = || std::fs::read_dir(folder(&store)).unwrap().count();
    let mut elsewhere = 0;
    for number in 0..100 {
        let text = format!("other {number}");
        let (held, before) = (take(&one, &claim(&text, TTL)).await, files());
        let news = stand(&other, &claim(&text, TTL)).await;
        elsewhere += usize::from(files() > before);
        one.release(&held).await.unwrap();
        woken(news).await;
        if files() > before {
            assert!(wake.signal.as_mut().unwrap().now_or_never().is_none(), "{text} wakes the waiter of another key");
        } else {
            // It has the side file of an earlier key. Listen again, should that be the one of `a`.
            wake = stand(&other, &claim("a", TTL)).await;
        }
    }
    assert!(elsewhere > 20, "100 keys have {elsewhere} side files");
    one.release(&hold).await.unwrap();
    woken(wake).await;
}

#[tokio::test]
async fn a_release_without_a_waiter_makes_no_file_and_one_with_a_waiter_writes_none() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    // It asks, and does not wait.
    assert!(crate::store::is_held(&other, "a").await);
    one.release(&hold).await.unwrap();
    assert!(!folder(&store).exists());
    let look = || {
        let files = std::fs::read_dir(folder(&store)).unwrap().map(|file| file.unwrap().path());
        let found: Vec<_> = files.map(|file| (file.metadata().unwrap(), file)).collect();
        found.iter().map(|(found, file)| (file.clone(), found.size(), found.mtime_nsec(), found.ctime_nsec())).collect()
    };
    let hold = take(&one, &claim("a", TTL)).await;
    let wake = stand(&other, &claim("a", TTL)).await;
    let before: Vec<_> = look();
    assert!(before.len() == 2 && before.iter().all(|file| file.1 == 0));
    one.release(&hold).await.unwrap();
    woken(wake).await;
    assert_eq!(look(), before, "a release wrote a side file");
}

#[tokio::test]
async fn a_removed_side_file_is_made_again() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    let wake = stand(&other, &claim("a", TTL)).await;
    std::fs::remove_dir_all(folder(&store)).unwrap();
    // It asks again, and watches the new file.
    woken(wake).await;
    let wake = stand(&other, &claim("a", TTL)).await;
    assert!(folder(&store).exists());
    one.release(&hold).await.unwrap();
    woken(wake).await;
}

/// A release that cannot tell, as after a move of the folder: the waiter asks by itself.
#[tokio::test]
async fn a_release_that_nobody_hears_is_found_by_the_poll() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    let waiter = claim("a", TTL);
    let mut wake = stand(&other, &waiter).await;
    let asks_by = wake.ask_by.unwrap().since(store.clock.now());
    assert!(asks_by <= Duration::from_millis(500) && wake.lease_left.unwrap() > asks_by);
    std::fs::rename(folder(&store), store.folder.path().join("elsewhere")).unwrap();
    one.release(&hold).await.unwrap();
    let next = dlock_testkit::holds::wait(&other, &waiter, LIMIT).await;
    assert!(wake.signal.as_mut().unwrap().now_or_never().is_none(), "the release was told, so nothing is proven");
    other.release(&next).await.unwrap();
}

/// No signal, a poll as short as elsewhere, and a finding.
async fn polls(store: &Store, backend: &Sqlite, wake: &Wake, why: &str) {
    assert!(wake.signal.is_none());
    assert!(wake.ask_by.unwrap().since(store.clock.now()) <= Duration::from_millis(50));
    let findings = backend.ready().await.unwrap().findings;
    assert!(findings.len() == 1 && findings[0].contains("poll") && findings[0].contains(why), "{findings:?}");
}

#[tokio::test]
async fn a_folder_that_is_not_ours_is_not_used() {
    for (what, why) in [("file", "is not what"), ("link", "is not what"), ("open", "written by other users")] {
        let store = Store::on_real_time();
        let (one, other) = (store.open().await, store.open().await);
        let aim = store.folder.path().join("aim");
        match what {
            "file" => std::fs::write(folder(&store), "").unwrap(),
            "link" => {
                std::fs::create_dir(&aim).unwrap();
                std::os::unix::fs::symlink(&aim, folder(&store)).unwrap();
            }
            _ => {
                std::fs::create_dir(folder(&store)).unwrap();
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                std::fs::set_permissions(folder(&store), open).unwrap();
            }
        }
        let hold = take(&one, &claim("a", TTL)).await;
        let waiter = claim("a", TTL);
        let wake = stand(&other, &waiter).await;
        polls(&store, &other, &wake, why).await;
        assert!(!aim.exists() || std::fs::read_dir(&aim).unwrap().count() == 0, "a link was followed");
        one.release(&hold).await.unwrap();
        dlock_testkit::holds::wait(&other, &waiter, LIMIT).await;
        // The operator removes it, as the finding says.
        let removed = if what == "open" { std::fs::remove_dir_all } else { |path: PathBuf| std::fs::remove_file(path) };
        removed(folder(&store)).unwrap();
        assert!(other.ready().await.unwrap().findings.is_empty());
    }
}

#[tokio::test]
async fn a_store_at_its_limits_polls_and_says_so() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let mut child = Child::spawn("wakes not", &[("URL", &store.url())]).unwrap();
    child.wait_line("polls", LIMIT).unwrap();
    one.release(&hold).await.unwrap();
    child.wait_line("has it", LIMIT).unwrap();
}

/// It has no descriptor left when it begins to wait.
pub(crate) fn poll_in_child() {
    let url = std::env::var("URL").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::on_real_time();
        let backend = Sqlite::open(&url, &store.clock).await.unwrap();
        assert!(crate::store::is_held(&backend, "a").await);
        assert!(backend.ready().await.unwrap().findings.is_empty());
        let mut taken = Vec::new();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(open + 16);
        setrlimit(Resource::Nofile, limit).unwrap();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        let findings = backend.ready().await.unwrap().findings;
        assert!(findings.len() == 1 && findings[0].contains("inotify instances"), "{findings:?}");
        let waiter = claim("a", TTL);
        let wake = stand(&backend, &waiter).await;
        assert!(wake.signal.is_none());
        assert!(wake.ask_by.unwrap().since(store.clock.now()) <= Duration::from_millis(50));
        say("polls");
        dlock_testkit::holds::wait(&backend, &waiter, LIMIT).await;
        say("has it");
    });
    std::process::exit(0);
}
