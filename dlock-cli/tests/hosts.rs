//! Five hosts with one line of cron. Their programs are killed and stopped at random, and their commands never overlap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use dlock_testkit::lateness;
use dlock_testkit::servers::shared;
use rustix::process::{Pid, Signal, kill_process};

const HOSTS: u64 = 5;
const ROUNDS: u32 = 10;
const TTL: Duration = Duration::from_secs(2);

/// Of the fates of a program.
const STOPPED_FOR_LONG: u32 = 2;

/// The exit code of a command that meets another one.
const OVERLAP: i32 = 99;

#[test]
fn commands_of_five_hosts_never_overlap_though_their_programs_are_killed_and_stopped() {
    lateness::watch();
    let (start, seed) = (Instant::now(), fastrand::u64(..));
    let folder = tempfile::tempdir().unwrap();
    let (url, key) = (shared().redis().unwrap(), format!("cron-{seed:x}"));
    let codes = Mutex::new(BTreeMap::<Option<i32>, u32>::new());
    scope(|scope| {
        for host in 0..HOSTS {
            let (folder, url, key, codes) = (folder.path(), &url, &key, &codes);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ host);
                for _ in 0..ROUNDS {
                    let fate = random.u32(..8);
                    let code = meet(fate, run(url, key, folder, fate), &mut random);
                    *codes.lock().unwrap().entry(code).or_default() += 1;
                }
            });
        }
    });
    let codes = codes.into_inner().unwrap();
    println!("seed {seed}: {codes:?}");
    // A command that the kernel kept from running for longer than the ttl, while its program was stopped, has lost its lock.
    let is_late = lateness::since(start) > TTL / 2;
    assert!(!codes.contains_key(&Some(OVERLAP)) || is_late, "two commands ran at once: {codes:?}");
    assert!(!codes.contains_key(&Some(OVERLAP)), "the machine was late, so nothing is proven: {codes:?}");
    let known = [Some(0), Some(69), Some(75), Some(76), Some(128 + 15), Some(128 + 9), None];
    assert!(codes.keys().all(|code| known.contains(code)), "{codes:?}");
    assert!(codes.get(&Some(0)).is_some_and(|done| *done >= 5), "{codes:?}");
    // Of the commands of killed programs some had begun too.
    let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap().lines().count();
    assert!(ran >= codes[&Some(0)] as usize, "{ran} {codes:?}");
}

/// The line of cron of one host. Its command takes a lock of this machine's kernel, which shows any overlap.
fn run(url: &str, key: &str, folder: &Path, fate: u32) -> Child {
    // While its program is stopped for longer than the ttl, the command itself does not end.
    let seconds = if fate == STOPPED_FOR_LONG { "30" } else { "0.03" };
    let script =
        format!("exec flock -n -E {OVERLAP} {0}/inside sh -c 'echo x >> {0}/ran; sleep {seconds}'", folder.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DLOCK_")) {
        command.env_remove(name);
    }
    command.args(["run", "--quiet", "--ttl", "2s", "--grace", "1ms", "--wait", "2m", key, "--", "sh", "-c", &script]);
    command.env("DLOCK_URL", url).stdin(Stdio::null()).spawn().unwrap()
}

/// Lets the program run to its end, or kills it, or stops it for shorter or longer than its ttl. Gives its exit code.
fn meet(fate: u32, mut program: Child, random: &mut fastrand::Rng) -> Option<i32> {
    let pid = Pid::from_child(&program);
    if fate < 3 {
        sleep(Duration::from_millis(random.u64(..300)));
    }
    match fate {
        0 => program.kill().unwrap(),
        1 | STOPPED_FOR_LONG => {
            // It may have ended; then this does nothing, since its parent has not waited for it.
            let _ = kill_process(pid, Signal::STOP);
            sleep(if fate == 1 { TTL / 4 } else { TTL * 3 / 2 });
            let _ = kill_process(pid, Signal::CONT);
            if fate == STOPPED_FOR_LONG {
                // Its command may have begun after that.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        _ => {}
    }
    program.wait().unwrap().code()
}
