//! A host name that only one child process of a test knows, and whose address the test changes, as a failover does.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::error::Context;
use crate::{Result, preloaded};

/// The name and its address. A small library gives them to the child, which is loaded before all others. So each look-up of the
/// child is changed, whichever library makes it. The machine's own files of names stay as they are.
pub struct HostName {
    name: &'static str,
    folder: TempDir,
    library: PathBuf,
}

impl HostName {
    /// A name with this address.
    pub fn new(name: &'static str, address: IpAddr) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for a host name")?;
        let library = preloaded::compile(folder.path(), "host_name", include_str!("host_name.c"))?;
        let host = Self { name, folder, library };
        host.leads_to(address)?;
        Ok(host)
    }

    /// Changes the address: look-ups from now on find this one.
    pub fn leads_to(&self, address: IpAddr) -> Result<()> {
        // At once, so that no look-up reads half of it.
        let draft = self.folder.path().join("draft");
        fs::write(&draft, address.to_string()).context("an address")?;
        fs::rename(draft, self.address()).context("an address")
    }

    /// The environment variables by which a child knows the name, for [`Child::spawn`](crate::child::Child::spawn).
    pub fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("DLOCK_HOST", self.name.to_owned()),
            ("DLOCK_ADDRESS", self.address().display().to_string()),
        ]
    }

    fn address(&self) -> PathBuf {
        self.folder.path().join("address")
    }
}
