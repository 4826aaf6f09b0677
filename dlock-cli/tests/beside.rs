//! The table "Beside other programs" of the README, point by point: each cell is seen on the program itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]
#![cfg(target_os = "linux")]

/// Some of them wait for the ends of sessions of Consul, which take up to 45 s.
mod thorough {
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use dlock_testkit::lateness;
    use dlock_testkit::servers::{Consul, Tree, find_program, shared};
    use rustix::process::{Pid, Signal, kill_process};
    use serde_json::Value;
    use tempfile::TempDir;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Program {
        Dlock,
        Flock,
        Consul,
        Etcdctl,
    }

    const ALL: [Program; 4] = [Program::Dlock, Program::Flock, Program::Consul, Program::Etcdctl];

    /// A lock that no other test has, and a folder for what the commands write.
    struct Place {
        program: Program,
        key: String,
        folder: TempDir,
    }

    /// The program with its command.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn etcdctl() -> Command {
        let unpacked = Tree::named("etcdctl").root().join("usr/bin/etcdctl");
        let program = unpacked.is_file().then_some(unpacked).or_else(|| find_program("etcdctl"));
        let mut command = Command::new(program.expect("etcdctl is missing: cargo xtask servers installs it"));
        command.args(["--endpoints", &shared().etcd().unwrap()]);
        command
    }

    fn consul_address() -> String {
        shared().consul().unwrap().replace("consul://", "")
    }

    impl Place {
        fn new(program: Program) -> Self {
            let folder = TempDir::new().unwrap();
            Self { program, key: format!("beside-{:x}", fastrand::u64(..)), folder }
        }

        fn file(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn has(&self, name: &str) -> bool {
            self.file(name).exists()
        }

        /// The program, to run this script under the lock. With options before the key.
        fn command(&self, options: &[&str], script: &str) -> Command {
            let file = self.file(&format!("script-{:x}", fastrand::u64(..)));
            std::fs::write(&file, format!("cd {}\n{script}\n", self.folder.path().display())).unwrap();
            let mut command = match self.program {
                Program::Dlock => {
                    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
                    command.env("DLOCK_URL", shared().redis().unwrap()).args(["run", "--ttl", "2s"]);
                    command
                }
                Program::Flock => Command::new("flock"),
                Program::Consul => {
                    let mut command = Command::new(Consul::program().unwrap());
                    command.args(["lock", &format!("-http-addr={}", consul_address())]);
                    command
                }
                Program::Etcdctl => {
                    let mut command = etcdctl();
                    command.args(["lock", "--ttl", "2"]);
                    command
                }
            };
            command.args(options);
            match self.program {
                Program::Flock => command.arg(self.file("lock")),
                _ => command.arg(&self.key),
            };
            command.arg("sh").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        }

        fn code(&self, options: &[&str], script: &str) -> Option<i32> {
            self.command(options, script).status().unwrap().code()
        }

        fn start(&self, options: &[&str], script: &str) -> Running {
            Running(self.command(options, script).spawn().unwrap())
        }

        /// A command that runs until it is ended. It notes its process, and a TERM.
        fn hold(&self) -> (Running, String) {
            let script =
                "trap 'touch term; exit' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.05; done";
            let running = self.start(&[], script);
            until("the command", || self.has("pid"));
            (running, std::fs::read_to_string(self.file("pid")).unwrap().trim().to_owned())
        }
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..6000 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{what} has not come");
    }

    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    fn end(pid: &str) {
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    #[test]
    fn the_exit_code_of_the_command() {
        for program in ALL {
            let place = Place::new(program);
            let code = place.code(&[], "exit 7");
            assert_eq!(code, Some(if program == Program::Consul { 0 } else { 7 }), "{program:?}");
        }
        assert_eq!(Place::new(Program::Consul).code(&["-child-exit-code"], "exit 7"), Some(2));
    }

    #[test]
    fn a_busy_lock() {
        for (program, do_not_wait, busy) in [
            (Program::Dlock, &["--wait", "none"][..], 75),
            (Program::Dlock, &["--wait", "none", "--busy-code", "9"], 9),
            (Program::Flock, &["-n"], 1),
            (Program::Flock, &["-n", "-E", "9"], 9),
            (Program::Consul, &["-try=1s"], 1),
        ] {
            let place = Place::new(program);
            let (running, pid) = place.hold();
            assert_eq!(place.code(do_not_wait, "touch never"), Some(busy), "{program:?}");
            assert!(!place.has("never"));
            drop(running);
            end(&pid);
        }
        // Another error has the same code.
        let nowhere = ["-http-addr=127.0.0.1:1", "-try=1s"];
        assert_eq!(Place::new(Program::Consul).code(&nowhere, "touch never"), Some(1));
    }

    #[test]
    fn the_program_is_killed() {
        for program in ALL {
            let place = Place::new(program);
            let (mut running, pid) = place.hold();
            running.0.kill().unwrap();
            running.0.wait().unwrap();
            if program == Program::Dlock {
                until("the end of the command", || !lives(&pid));
                continue;
            }
            if program == Program::Flock {
                assert_eq!(place.code(&["-n"], "touch never"), Some(1), "the command has the lock");
            } else {
                // With the lock of a command that goes on.
                let _other = place.start(&[], "touch other");
                until("the next holder", || place.has("other"));
            }
            assert!(lives(&pid), "{program:?}");
            end(&pid);
        }
    }

    #[test]
    fn the_program_is_stopped_for_longer_than_the_lock_lasts() {
        lateness::watch();
        for program in [Program::Dlock, Program::Consul, Program::Etcdctl] {
            let (place, start) = (Place::new(program), Instant::now());
            let (running, pid) = place.hold();
            kill_process(Pid::from_child(&running.0), Signal::STOP).unwrap();
            let wait: &[&str] = if program == Program::Dlock { &["--wait", "2m"] } else { &[] };
            let _other = place.start(wait, "touch other");
            until("the next holder", || place.has("other"));
            // Its supervisor has a small part of the ttl for that.
            let verdict = lateness::verdict(start, Duration::from_millis(20));
            assert_eq!(lives(&pid), program != Program::Dlock, "{program:?}{verdict}");
            assert_eq!(place.has("term"), program == Program::Dlock, "{program:?}");
            end(&pid);
        }
    }

    #[test]
    fn the_lock_is_lost() {
        let place = Place::new(Program::Dlock);
        let (mut running, _) = place.hold();
        let dlock = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
            command.env("DLOCK_URL", shared().redis().unwrap()).args(words).output().unwrap().stdout
        };
        let shown: Value = serde_json::from_slice(&dlock(&["show", "--json", &place.key])).unwrap();
        let hold = shown[0]["holders"][0]["hold"].as_str().unwrap();
        dlock(&["break", &place.key, "--hold", hold, "--why", "test", "--yes"]);
        assert_eq!(running.0.wait().unwrap().code(), Some(76));
        assert!(place.has("term"));

        let place = Place::new(Program::Consul);
        let (_running, pid) = place.hold();
        let entry = http("GET", &format!("/v1/kv/{}/.lock", place.key));
        let entry: Value = serde_json::from_str(&entry).unwrap();
        http("PUT", &format!("/v1/session/destroy/{}", entry[0]["Session"].as_str().unwrap()));
        until("TERM", || place.has("term"));
        until("its end", || !lives(&pid));

        let place = Place::new(Program::Etcdctl);
        let (_running, pid) = place.hold();
        let key = etcdctl().args(["get", "--prefix", &place.key, "--keys-only"]).output().unwrap();
        let key = String::from_utf8(key.stdout).unwrap();
        // The key ends in the id of its lease.
        let lease = key.trim().rsplit_once('/').unwrap().1.to_owned();
        assert!(etcdctl().args(["lease", "revoke", &lease]).output().unwrap().status.success());
        let _other = place.start(&[], "touch other");
        until("the next holder", || place.has("other"));
        assert!(lives(&pid) && !place.has("term"));
        end(&pid);
    }

    /// A request to Consul.
    fn http(method: &str, path: &str) -> String {
        use std::io::{Read, Write};
        let mut server = std::net::TcpStream::connect(consul_address()).unwrap();
        write!(server, "{method} {path} HTTP/1.0\r\nHost: consul\r\n\r\n").unwrap();
        let mut answer = String::new();
        server.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}
