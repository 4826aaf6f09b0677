//! Tests that need several users.

use std::env;
use std::process::Command;
use std::time::Duration;

use dlock_testkit::child::Child;

/// Runs the body of this test as root, who may be every user. Another account runs the test once more, as the root of the
/// users that the system has set aside for it.
pub(crate) fn as_several(test: &str, body: impl FnOnce()) {
    if rustix::process::geteuid().is_root() {
        body();
        // A line of its own, also where the name of the test stands before.
        println!("\nall users done");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--map-auto"]).arg(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=2"]);
    let ended = Child::of(command).unwrap().wait_line("all users done", Duration::from_secs(60));
    ended.expect(
        "this account cannot be several users: apt-get install uidmap util-linux, \
         usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$USER\", \
         sysctl kernel.unprivileged_userns_clone=1; or run the tests as root",
    );
}
