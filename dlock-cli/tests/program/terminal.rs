//! Commands that have a terminal as standard input.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::store::{HOLD, Holder, Store, code, lives, until};

/// A terminal: its keyboard, and the standard input of a command on it.
fn terminal() -> (File, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let input = File::open(ptsname(&keyboard, Vec::new()).unwrap().to_str().unwrap()).unwrap();
    (File::from(keyboard), input)
}

/// As [`Store::hold`], on a terminal that lasts as long as the file.
fn hold(store: &Store, ttl: &str, words: &[&str], script: &str) -> (Holder, File) {
    let (keyboard, input) = terminal();
    let mut command =
        store.dlock(&[&["run", "--ttl", ttl, "--renew", "1s"], words, &["job", "sh", "-c", script]].concat());
    let mut process = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (Holder { process, output, first: line.trim().to_owned() }, keyboard)
}

#[test]
fn a_break_asks_back_on_a_terminal() {
    let store = Store::new();
    let mut holder = store.hold(&[], "job", HOLD);
    let hold = store.holder_of("job")["hold"].as_str().unwrap().to_owned();
    for (answer, ended) in [("\n", 1), ("n\n", 1), ("y\n", 0)] {
        let (mut keyboard, input) = terminal();
        let asking = store
            .dlock(&["break", "job", "--hold", &hold, "--why", "test"])
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn();
        keyboard.write_all(answer.as_bytes()).unwrap();
        assert_eq!(Holder::of(asking.unwrap()).code(), ended, "{answer:?}");
        assert_eq!(code(&store.run(&["show", "job"])), ended ^ 1, "{answer:?}");
    }
    assert_eq!(holder.end(), 76);
}

/// A shell with a child whose parent has ended and a child of its own. It prints their process ids.
const TREE: &str = "sh -c 'sleep 1000 & echo $!' > $F; sleep 1000 & echo $$ $! $(cat $F); rm $F; wait";

fn tree(store: &Store, ttl: &str, words: &[&str], trap: &str) -> (Holder, File, Vec<String>) {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let script = format!("{trap} F={}; {TREE}", file.display());
    let (holder, terminal) = hold(store, ttl, words, &script);
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    assert!(pids.len() == 3 && pids.iter().all(|pid| lives(pid)), "{pids:?}");
    (holder, terminal, pids)
}

#[test]
fn what_a_command_has_started_on_a_terminal_ends_when_the_lock_is_lost() {
    let store = Store::new();
    let (mut holder, _terminal, pids) = tree(&store, "1m", &["--grace", "50ms"], "trap '' TERM;");
    let hold = store.holder_of("job")["hold"].as_str().unwrap().to_owned();
    assert_eq!(code(&store.run(&["break", "job", "--hold", &hold, "--why", "test", "--yes"])), 0);
    assert_eq!(holder.code(), 76);
    until(|| !pids.iter().any(|pid| lives(pid)));
}

#[test]
fn what_a_command_has_started_on_a_terminal_ends_with_the_program() {
    let store = Store::new();
    let (mut holder, _terminal, pids) = tree(&store, "3s", &[], "");
    holder.process.kill().unwrap();
    until(|| !pids.iter().any(|pid| lives(pid)));
    // Stopped for longer than the lock lasts.
    let (holder, _terminal, pids) = tree(&store, "3s", &["--wait", "1m"], "");
    holder.signal(Signal::STOP);
    until(|| !pids.iter().any(|pid| lives(pid)));
    holder.signal(Signal::CONT);
}

#[test]
fn signals_go_to_all_that_a_command_has_started_on_a_terminal_but_those_of_the_keyboard_do_not() {
    let store = Store::new();
    let traps = "trap 'echo int' INT; trap 'echo usr1' USR1;";
    // It ends by itself, so a signal that never comes fails the test.
    let child = format!("{traps} echo \\$\\$; for _ in \\$(seq 6000); do sleep 0.01; done");
    let script = format!("{traps} sh -c \"{child}\" & while kill -0 $!; do wait; done; sleep 60");
    let (mut holder, _terminal) = hold(&store, "1m", &[], &script);
    let mut line = || {
        let mut line = String::new();
        holder.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let pid = Pid::from_child(&holder.process);
    // A terminal sends INT to the whole group.
    kill_process(pid, Signal::INT).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    assert_eq!([line(), line()], ["usr1", "usr1"]);
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(holder.code(), 143);
}
