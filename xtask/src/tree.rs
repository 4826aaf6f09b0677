//! A tree of unpacked files, such as those of a server.

use std::fs;

use dlock_testkit::servers::Tree;
use tempfile::TempDir;

use crate::sh::Result;

/// Makes what was prepared in a draft the tree, in the place of an older one.
pub(crate) fn put(draft: TempDir, tree: &Tree, version: &str) -> Result {
    if tree.root().exists() {
        fs::remove_dir_all(tree.root())?;
    }
    fs::rename(draft.keep(), tree.root())?;
    // Last, so that half a tree is never taken for a whole one.
    fs::write(tree.version_file(), version)?;
    Ok(())
}
