//! How a command ends: with its lock, by signals, and with the program.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use dlock_testkit::lateness;

use crate::store::{HOLD, Store, code, lives, state, text, until};

#[test]
fn a_command_goes_on_without_its_lock_if_it_shall() {
    let store = Store::new();
    let mut holder = store.hold(&["--on-lost", "continue"], "job", HOLD);
    let hold = store.holder_of("job")["hold"].as_str().unwrap().to_owned();
    assert_eq!(code(&store.run(&["break", "job", "--hold", &hold, "--why", "test", "--yes"])), 0);
    let mut errors = BufReader::new(holder.process.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("the command goes on"), "{line}");
    assert!(lives(&holder.first));
    assert_eq!(holder.end(), 0);
}

#[test]
fn signals_go_to_the_command() {
    let store = Store::new();
    // Not in `read`: the shell may miss a signal that comes just before it waits there.
    let mut holder = store.hold(
        &[],
        "job",
        "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done",
    );
    holder.signal(rustix::process::Signal::USR1);
    let mut line = String::new();
    holder.output.read_line(&mut line).unwrap();
    assert_eq!(line, "usr1\n");
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.end(), 5);
    // A command without a trap ends by the signal.
    let mut holder = store.hold(&[], "job", HOLD);
    // Kept open: at its end the command would end by itself.
    let _input = holder.process.stdin.take();
    // A shell keeps an INT that comes while it starts `cat` until that has ended.
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.code(), 143);
}

#[test]
fn a_signal_ends_the_wait() {
    let store = Store::new();
    let holder = store.hold(&[], "job", HOLD);
    let waiter =
        store.dlock(&["run", "--wait", "forever", "job", "echo", "never"]).stdout(Stdio::piped()).spawn().unwrap();
    until(|| store.holder_of("job")["hold"].is_string());
    let pid = rustix::process::Pid::from_child(&waiter);
    // Its handlers must stand; before that the signal itself ends it.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = waiter.wait_with_output().unwrap();
    assert!(matches!(ended.status.code(), Some(143) | None));
    assert_eq!(text(&ended.stdout), "");
    drop(holder);
}

#[cfg(target_os = "linux")]
#[test]
fn the_command_ends_with_the_program_even_if_it_is_killed() {
    let store = Store::new();
    let mut holder = store.hold_briefly(&[], "job", "sleep 1000 & echo $$ $!; wait");
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)));
    holder.process.kill().unwrap();
    // Its children too.
    until(|| !pids.iter().any(|pid| lives(pid)));
    // The ttl frees the lock.
    assert_eq!(code(&store.run(&["run", "--wait", "1m", "job", "true"])), 0);
}

/// Nobody in the stopped program could end the command.
#[cfg(target_os = "linux")]
#[test]
fn the_command_ends_with_its_lock_while_the_program_is_stopped() {
    let store = Store::new();
    let script = "sleep 1000 & echo $$ $!; trap '' TERM; while :; do wait; done";
    let mut holder = store.hold_briefly(&["--grace", "50ms"], "job", script);
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    holder.signal(rustix::process::Signal::STOP);
    until(|| !pids.iter().any(|pid| lives(pid)));
    assert_eq!(code(&store.run(&["run", "--wait", "1m", "job", "true"])), 0);
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.code(), 76);
}

/// The supervisor must not end a command whose lock goes on, nor one that may go on without it.
#[cfg(target_os = "linux")]
#[test]
fn a_renewed_lock_and_a_command_that_may_go_on_have_no_deadline() {
    let store = Store::new();
    let longer_than_the_ttl = store.run(&["run", "--ttl", "10s", "job", "sh", "-c", "sleep 11; echo done"]);
    assert_eq!(text(&longer_than_the_ttl.stdout), "done\n");
    // In milliseconds it is more than 32 bits.
    assert_eq!(code(&store.run(&["run", "--grace", "100d", "job", "true"])), 0);
    let mut holder = store.hold_briefly(&["--on-lost", "continue"], "other", "echo $$; sleep 4; echo done");
    holder.signal(rustix::process::Signal::STOP);
    // Not to its end: the stopped program has it open.
    let mut line = String::new();
    holder.output.read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let store = Store::new();
    let ended = store.run(&[
        "run",
        "--timeout",
        "50ms",
        "--grace",
        "50ms",
        "job",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 0.01; done",
    ]);
    assert_eq!(code(&ended), 124);
    assert_eq!(code(&store.run(&["run", "--wait", "none", "job", "true"])), 0);
}

#[test]
fn a_command_is_stopped_and_goes_on_with_signals_to_the_program_and_keeps_its_lock() {
    lateness::watch();
    let (store, start) = (Store::new(), Instant::now());
    // A shell that starts a process may be stopped between `vfork` and `exec`. Then its child is stopped, and the shell itself waits
    // in another state.
    let mut holder = store.hold_briefly(&[], "job", "echo $$; exec cat");
    // The program itself goes on, so the lock is renewed.
    holder.signal(rustix::process::Signal::TSTP);
    until(|| state(&holder.first) == Some('T'));
    // Longer than the ttl.
    std::thread::sleep(Duration::from_secs(4));
    let busy = store.run(&["run", "--wait", "none", "job", "true"]);
    assert_eq!(code(&busy), 75, "{}", lateness::verdict(start, Duration::from_secs(1)));
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.end(), 0, "{}", lateness::verdict(start, Duration::from_secs(1)));
}

#[test]
fn a_lock_that_is_not_renewed_ends_with_its_command() {
    let store = Store::new();
    // Without the option it is renewed: another test has a command that takes longer than the ttl.
    let lost = store.run(&["run", "--ttl", "300ms", "--renew", "false", "job", "sleep", "1000"]);
    assert_eq!(code(&lost), 76, "{}", text(&lost.stderr));
}

/// `timeout` makes a group of its own, and so does a shell for each job if it is told to.
#[cfg(target_os = "linux")]
#[test]
fn a_command_in_a_group_of_its_own_ends_with_its_lock_too() {
    let store = Store::new();
    let script = "timeout 1000 sh -c 'trap \"\" TERM; sleep 1000 & echo $$ $!; while :; do wait; done'";
    let mut holder = store.hold(&["--grace", "50ms"], "job", script);
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)), "{pids:?}");
    let hold = store.holder_of("job")["hold"].as_str().unwrap().to_owned();
    assert_eq!(code(&store.run(&["break", "job", "--hold", &hold, "--why", "test", "--yes"])), 0);
    assert_eq!(holder.code(), 76);
    // The program ends last.
    assert!(!pids.iter().any(|pid| lives(pid)));
    let mut holder =
        store.hold(&[], "job", "timeout 1000 sh -c 'trap \"exit 7\" TERM; echo $$; while :; do sleep 0.01; done'");
    holder.signal(rustix::process::Signal::TERM);
    holder.code();
    assert!(!lives(&holder.first));
}

/// `killall -9 dlock` kills the program alone, and somebody may kill the supervisor alone.
#[cfg(target_os = "linux")]
#[test]
fn the_rest_of_a_command_ends_before_its_lock_if_its_supervisor_was_killed() {
    let store = Store::new();
    let mut holder = store.hold(&[], "job", "sleep 1000 & echo $PPID $$ $!; wait");
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    let supervisor = std::path::Path::new("/proc").join(&pids[0]);
    assert_eq!(std::fs::read_to_string(supervisor.join("comm")).unwrap(), "supervisor\n");
    let supervisor = rustix::process::Pid::from_raw(pids[0].parse().unwrap()).unwrap();
    rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    assert_eq!(holder.code(), 137);
    assert!(!pids.iter().any(|pid| lives(pid)));
    assert_eq!(code(&store.run(&["run", "--wait", "none", "job", "true"])), 0);
}

/// The command may not be there yet when the signal comes.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_at_any_moment_of_the_start_ends_the_command() {
    let store = Store::new();
    for _ in 0..30 {
        let mut command = store.dlock(&["run", "--wait", "1m", "job", "sleep", "1000"]);
        let started = command.stdout(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(fastrand::u64(..60)));
        let pid = rustix::process::Pid::from_child(&started);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        // Before its handlers stand, the signal itself ends it.
        assert!(matches!(crate::store::Holder::of(started).end_code(), Some(143) | None));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_a_command_leaves_behind_keeps_the_lock() {
    let store = Store::new();
    let mut holder = store.hold(&[], "job", "sleep 1000 & echo $$");
    until(|| !lives(&holder.first));
    assert_eq!(code(&store.run(&["run", "--wait", "none", "job", "true"])), 75);
    // A signal ends it, also one that came while it was stopped.
    holder.signal(rustix::process::Signal::TSTP);
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.code(), 0);
    assert_eq!(code(&store.run(&["run", "--wait", "none", "job", "true"])), 0);
}

/// A script that becomes the program, and has printed a line.
#[cfg(target_os = "linux")]
fn script_of(store: &Store, script: &str) -> crate::store::Holder {
    let command = store.dlock(&[]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut holder = crate::store::Holder::of(shell.spawn().unwrap());
    let mut line = String::new();
    holder.output.read_line(&mut line).unwrap();
    holder.first = line.trim().to_owned();
    holder
}

/// As after `nohup`.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored_at_the_start_stays_ignored() {
    let store = Store::new();
    let program = env!("CARGO_BIN_EXE_dlock");
    let script = format!("trap '' HUP; exec {program} run job sh -c 'echo $$; cat'");
    let mut holder = script_of(&store, &script);
    holder.signal(rustix::process::Signal::HUP);
    assert!(lives(&holder.first));
    assert_eq!(holder.end(), 0);
}

/// A script that has become the program keeps its other children.
#[cfg(target_os = "linux")]
#[test]
fn processes_that_were_there_before_are_left_alone() {
    let store = Store::new();
    let program = env!("CARGO_BIN_EXE_dlock");
    let script = format!("sleep 1000 & echo $!; exec {program} run --timeout 100ms --grace 50ms job sleep 1000");
    let mut holder = script_of(&store, &script);
    assert_eq!(holder.code(), 124);
    assert!(lives(&holder.first));
    let pid = rustix::process::Pid::from_raw(holder.first.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
