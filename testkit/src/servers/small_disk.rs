//! A server that has a part of its files on a disk of its own, which a test can fill.

use std::path::Path;
use std::process::Command;

use super::Recipe;
use super::changed::Changed;
use crate::find::{find_program, missing};
use crate::spawn::behind;

/// A server whose folder `part`, below its own, is on a disk with this many megabytes. If there is no such folder at a
/// start, that start has no disk. What was written to the disk is gone at the next start.
///
/// The disk is a file system in memory that only the server sees, in a name space of its own. It needs no root where the
/// kernel lets an ordinary user make one; otherwise the server does not start, and its log names the command that helps.
pub fn on_small_disk<R: Recipe>(recipe: R, part: &'static str, megabytes: u32) -> impl Recipe + use<R> {
    let is_root = rustix::process::geteuid().is_root() && !recipe.refuses_root();
    Changed::new(recipe, move |folder: &Path, command: Command| {
        let mut mounted = Command::new(find_program("unshare").ok_or_else(|| missing("util-linux"))?);
        if !is_root {
            mounted.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        mounted.args(["--mount", "sh", "-c", MOUNT]).arg(folder.join(part)).arg(format!("size={megabytes}m"));
        Ok(behind(mounted, &command))
    })
}

/// The signal of the death of the parent is set anew: entering a name space takes it back.
const MOUNT: &str = r#"
    if [ -d "$0" ]; then
        cp -a "$0" "$0.copy" && mount -t tmpfs -o "$1" tmpfs "$0" && cp -a "$0.copy/." "$0" && rm -r "$0.copy" || {
            echo "no disk of its own: run as root, or after sysctl kernel.unprivileged_userns_clone=1"
            exit 1
        }
    fi
    shift
    exec setpriv --pdeathsig KILL -- "$@"
"#;
