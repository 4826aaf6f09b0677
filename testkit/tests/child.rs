//! Children, and that nothing outlives the process that started it.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::child::{Child, role};
use dlock_testkit::servers::{Instance, Redis, shared};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn child_main() {
    match role().as_deref() {
        Some("talker") => {
            println!("hello {}", std::env::var("NAME").unwrap());
            println!("redis {}", shared().redis().unwrap());
        }
        Some("ticker") => {
            for tick in 0.. {
                println!("tick {tick}");
                thread::sleep(Duration::from_millis(10));
            }
        }
        Some("owner") => {
            let server = Instance::start(Redis::default()).unwrap();
            println!("server {}", server.pid().unwrap());
            println!("folder {}", server.folder().display());
            thread::sleep(Duration::from_secs(60));
        }
        Some(other) => panic!("no role {other}"),
        None => {}
    }
}

#[test]
fn a_child_gets_its_role_its_variables_and_our_servers() {
    let ours = shared().redis().unwrap();
    let mut child = Child::spawn("talker", &[("NAME", "joe")]).unwrap();
    assert_eq!(child.wait_line("hello ", LONG).unwrap(), "joe");
    assert_eq!(child.wait_line("redis ", LONG).unwrap(), ours);
    assert!(child.wait(LONG).unwrap().success());
    assert!(child.stop().is_err(), "it has ended");
}

#[test]
fn another_program_can_be_a_child() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo hello $NAME; exec sleep 60"]).env("NAME", "joe");
    let mut child = Child::of(command).unwrap();
    assert_eq!(child.wait_line("hello ", LONG).unwrap(), "joe");
    let pid = child.pid();
    drop(child);
    assert!(!is_alive(pid));
}

#[test]
fn a_line_that_does_not_come_is_an_error_with_the_others() {
    let mut child = Child::spawn("ticker", &[]).unwrap();
    child.wait_line("tick 1", LONG).unwrap();
    let error = child.wait_line("never", Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("never") && error.contains("tick 1"), "{error}");
    child.kill9().unwrap();
    let error = child.wait_line("never", LONG).unwrap_err().to_string();
    assert!(error.contains("before its output ended"), "{error}");
}

#[test]
fn a_stopped_child_does_nothing_until_it_goes_on() {
    let mut child = Child::spawn("ticker", &[]).unwrap();
    child.wait_line("tick ", LONG).unwrap();
    child.stop().unwrap();
    // The lines that it printed before may come later.
    let end = Instant::now() + LONG;
    while child.wait_line("tick ", Duration::from_millis(300)).is_ok() {
        assert!(Instant::now() < end, "it goes on");
    }
    child.cont().unwrap();
    child.wait_line("tick ", LONG).unwrap();
    let pid = child.pid();
    drop(child);
    assert!(!is_alive(pid));
}

#[test]
fn servers_of_a_killed_process_die_with_it() {
    let mut child = Child::spawn("owner", &[]).unwrap();
    let server: u32 = child.wait_line("server ", LONG).unwrap().parse().unwrap();
    let folder = child.wait_line("folder ", LONG).unwrap();
    assert!(is_alive(server) && Path::new(&folder).exists());
    child.kill9().unwrap();
    let deadline = Instant::now() + LONG;
    while is_alive(server) {
        assert!(Instant::now() < deadline, "the server lives on");
        thread::sleep(Duration::from_millis(5));
    }
    // Its folder goes with the next process that starts a server, once it is some seconds old.
    // It may have done so already.
    let _ = std::fs::remove_dir_all(folder);
}

/// A zombie counts as dead, because the process that inherits the server may reap it late.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
