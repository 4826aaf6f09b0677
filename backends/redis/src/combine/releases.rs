//! Releases that leave in one script.
//!
//! Exists because a script call for each release costs the server twice as much. With many tasks the server would be busy
//! sooner, and all locks would be slower.

use ::redis::{Arg, Cmd};
use dlock_contract::Claim;

use crate::layout::name::LockName;
use crate::layout::value::LockValue;
use crate::scripts::exclusive::SCRIPTS;

/// Bytes of a lock's name and of its value, mostly.
const USUAL_NAME: usize = 48;
const USUAL_VALUE: usize = 112;

/// Locks that are released together, by one script.
#[derive(Default)]
pub(crate) struct Releases {
    /// Arguments of the command to be, which has all names before all values.
    names: Cmd,
    values: Cmd,
    pub(crate) count: usize,
}

impl Releases {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self {
            names: Cmd::with_capacity(count, count * USUAL_NAME),
            values: Cmd::with_capacity(count, count * USUAL_VALUE),
            count: 0,
        }
    }

    pub(crate) fn put(&mut self, claim: &Claim) {
        self.names.arg(LockName(&claim.key));
        self.values.arg(LockValue(claim));
        self.count += 1;
    }

    pub(crate) fn call(&self) -> Option<Cmd> {
        if self.count == 0 {
            return None;
        }
        let mut command = Cmd::with_capacity(3 + 2 * self.count, 64 + self.count * (USUAL_NAME + USUAL_VALUE));
        command.arg("EVALSHA").arg(&SCRIPTS.release_all.digest);
        command.arg(self.count);
        for argument in self.names.args_iter().chain(self.values.args_iter()) {
            if let Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        Some(command)
    }
}
