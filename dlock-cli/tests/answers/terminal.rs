//! Commands on a terminal: a live picture, its keys and its colours, and the sign that a command waits.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy, block_until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::{Running, dlock, until};

/// The bar of a lease: a row of `dlock watch` has it, and the headings have not.
const A_ROW: &str = "█";

/// A picture that waits for a store must not keep the keys waiting.
#[test]
fn a_watch_of_a_silent_store_obeys_its_keys() {
    let (proxy, url) = Proxy::in_front_of(&shared().redis().unwrap()).unwrap();
    // On a busy machine the key may come after the store was given up.
    let ends_unanswered = |_| {
        proxy.set(Mode::Pass);
        let (mut keys, screen, mut watch) = on_a_terminal(&url, |_| ());
        block_until("a picture", || screen.lock().unwrap().contains("HOLDER")).unwrap();
        let asked = proxy.swallowing();
        proxy.set(Mode::BLACKHOLE);
        block_until("a look without an answer", || proxy.swallowing() > asked).unwrap();
        keys.write_all(b"q").unwrap();
        assert!(watch.0.wait().unwrap().success());
        block_until("the end of the screen", || Arc::strong_count(&screen) == 1).unwrap();
        !screen.lock().unwrap().contains("outage")
    };
    assert!((0..5).any(ends_unanswered), "the key was heard only when the store was given up");
}

#[test]
fn a_watch_goes_on_when_its_store_is_back() {
    let (proxy, url) = Proxy::in_front_of(&shared().redis().unwrap()).unwrap();
    // The locks of other tests are not in the picture.
    let key = format!("back{:x}", fastrand::u64(..));
    let (_keys, screen, _watch) = start_on_a_terminal(dlock(&url, &["watch", &key]), 80);
    let shows = |text: &str| screen.lock().unwrap().contains(text);
    block_until("a picture", || shows("HOLDER")).unwrap();
    proxy.set(Mode::BLACKHOLE);
    block_until("the error", || shows("outage")).unwrap();
    let _holder = Running::start(&shared().redis().unwrap(), &key);
    assert!(!shows(A_ROW));
    proxy.set(Mode::Pass);
    block_until("the lock that was taken meanwhile", || shows(A_ROW)).unwrap();
}

#[test]
fn a_watch_has_colours_unless_no_color_is_set() {
    let url = shared().redis().unwrap();
    let key = format!("bar{:x}", fastrand::u32(..));
    let _holder = Running::start(&url, &key);
    for (value, has_colours) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let (_keys, screen, _watch) = on_a_terminal(&url, |command| {
            command.env_remove("NO_COLOR").envs(value.map(|value| ("NO_COLOR", value)));
        });
        block_until("the bar of the lease", || screen.lock().unwrap().contains(A_ROW)).unwrap();
        let screen = screen.lock().unwrap();
        assert_eq!(screen.contains("\u{1b}[38;5;"), has_colours, "{value:?}: {screen:?}");
        assert!(!screen.contains("\u{1b}[;m"), "{value:?}: {screen:?}");
    }
}

#[test]
fn a_watch_breaks_a_hold_also_on_a_narrow_terminal() {
    let url = shared().redis().unwrap();
    let key = format!("w{:x}", fastrand::u32(..));
    let words = ["run", "--renew", "1s", &key, "sleep", "600"];
    let mut holder = Running(dlock(&url, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until(&url, &["show", &key], |shown| shown.status.success());
    let mut command = dlock(&url, &["watch", &key]);
    command.env_remove("NO_COLOR");
    let (mut keys, screen, _watch) = start_on_a_terminal(command, 40);
    let shows = |text: &str| screen.lock().unwrap().contains(text);
    // The key alone is in the heading before the store has answered.
    block_until("the lock", || shows(A_ROW)).unwrap();
    keys.write_all(b"b").unwrap();
    block_until("the question", || shows("Break it?")).unwrap();
    keys.write_all(b"it hangs\r").unwrap();
    block_until("the word about the break", || shows("broken:")).unwrap();
    assert_eq!(holder.0.wait().unwrap().code(), Some(76));
}

/// On call, somebody may have a telephone.
#[test]
fn the_help_is_readable_on_a_narrow_terminal() {
    for words in [["--help"].as_slice(), &["show", "--help"], &["break", "--help"]] {
        let mut command = dlock("memory://", words);
        command.env("NO_COLOR", "1");
        let (_keys, screen, mut help) = start_on_a_terminal(command, 40);
        help.0.wait().unwrap();
        block_until("the end of the screen", || Arc::strong_count(&screen) == 1).unwrap();
        let screen = screen.lock().unwrap();
        // clap does not wrap the usage.
        for line in screen.lines().filter(|line| !line.starts_with("Usage:")) {
            assert!(line.trim_end().chars().count() <= 40, "{line:?} of {screen}");
            let indent = line.len() - line.trim_start().len();
            // clap indents the list of the commands by 15.
            assert!(indent <= 15 || line.trim().is_empty(), "{line:?} of {screen}");
        }
    }
}

#[test]
fn a_doctor_on_a_terminal_has_colours_unless_no_color_is_set() {
    for (value, has_colours) in [(None, true), (Some("1"), false)] {
        let mut command = dlock(&shared().redis().unwrap(), &["doctor", "--rounds", "1"]);
        command.env_remove("NO_COLOR").envs(value.map(|value| ("NO_COLOR", value)));
        let (_keys, screen, mut doctor) = start_on_a_terminal(command, 80);
        doctor.0.wait().unwrap();
        block_until("the end of the screen", || Arc::strong_count(&screen) == 1).unwrap();
        let screen = screen.lock().unwrap();
        assert!(screen.contains("locks survive") && screen.contains("\u{1b}[") == has_colours, "{value:?}: {screen:?}");
    }
}

#[test]
fn a_command_that_waits_on_a_terminal_says_so_and_for_how_long() {
    let url = shared().redis().unwrap();
    let key = format!("awaited{:x}", fastrand::u32(..));
    let _holder = Running::start(&url, &key);
    until(&url, &["show", &key], |shown| shown.status.success());
    for words in [["wait", &key].as_slice(), &["run", &key, "true"]] {
        let (_keys, screen, _waits) = start_on_a_terminal(dlock(&url, words), 80);
        let shows = |text: &str| screen.lock().unwrap().contains(text);
        block_until("the sign", || shows("waiting for") && shows(&key)).unwrap();
        block_until("the time that passes", || shows("2s")).unwrap();
    }
    // A pipe gets no sign.
    let piped = dlock(&url, &["wait", "--wait", "300ms", &key]).output().unwrap();
    assert!(!String::from_utf8_lossy(&piped.stderr).contains("waiting for"), "{piped:?}");
}

/// `dlock watch` on a terminal of 80 columns: its keyboard, and the bytes on its screen.
fn on_a_terminal(url: &str, change: impl Fn(&mut Command)) -> (File, Arc<Mutex<String>>, Running) {
    let mut command = dlock(url, &["watch"]);
    change(&mut command);
    start_on_a_terminal(command, 80)
}

fn start_on_a_terminal(mut command: Command, columns: u16) -> (File, Arc<Mutex<String>>, Running) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let terminal = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
    let size = ["rows", "24", "cols", &columns.to_string()];
    assert!(Command::new("stty").args(size).stdin(terminal()).status().unwrap().success());
    let program = command.stdin(terminal()).stdout(terminal()).stderr(terminal()).spawn().unwrap();
    let (keyboard, screen) = (File::from(keyboard), Arc::new(Mutex::new(String::new())));
    let (mut output, seen) = (keyboard.try_clone().unwrap(), screen.clone());
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    (keyboard, screen, Running(program))
}
