//! Data folders of SQL servers: made once per machine and version, and copied for each server. A copy takes a fraction of the
//! seconds that a set-up program takes.

use std::path::Path;
use std::sync::Mutex;
use std::{fs, io};

use crate::Result;
use crate::error::Context;
use crate::find::cache_folder;

/// Puts `data` into `folder`. `make` does so in another folder, if this version was never made on this machine.
pub(super) fn copy_of(version: &str, folder: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let name: String =
        version.trim().chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let made = cache_folder().join(format!("data-{name}"));
    {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !made.is_dir() {
            keep(&made, make)?;
        }
    }
    copy_folder(&made, &folder.join("data")).context("copying an empty data folder")
}

/// Makes it elsewhere: a server that does not run as root cannot get into root's cache folder.
fn keep(made: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let draft = tempfile::tempdir().context("a folder for empty data")?;
    make(draft.path())?;
    fs::create_dir_all(cache_folder()).context("the cache folder")?;
    let beside = tempfile::tempdir_in(cache_folder()).context("the cache folder")?;
    let data = beside.path().join("data");
    copy_folder(&draft.path().join("data"), &data).context("keeping an empty data folder")?;
    // Another process may have been faster; its folder is used then.
    match fs::rename(&data, made) {
        Err(error) if !made.is_dir() => Err(error).context("keeping an empty data folder"),
        _ => Ok(()),
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    // PostgreSQL refuses a folder that others may read.
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
