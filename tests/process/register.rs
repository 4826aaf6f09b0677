//! The resource behind each lock among random faults: a counter in a file, which takes no write with a lower token than it has seen.
//!
//! The file is its own history. Each line is a state, so a write and its record are one system call, and `kill -9` comes between
//! nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dlock_sim::{Event, What};

use crate::arena::now;
use crate::record::Record;

/// The number of the key, the name of the file without it.
const NAME: &str = "register-";

/// `at token process call value`, each with 20 digits.
const LINE: usize = 5 * 21;

/// The counter of one lock.
pub(crate) struct Register {
    file: File,
    process: u32,
    record: Arc<Record>,
}

impl Register {
    pub(crate) fn open(folder: &Path, key: u32, process: u32, record: Arc<Record>) -> Self {
        let path = folder.join(format!("{NAME}{key}"));
        Self { file: OpenOptions::new().create(true).read(true).append(true).open(path).unwrap(), process, record }
    }

    /// The value; `None` for a token that is too low. From now on lower ones are refused.
    pub(crate) async fn read(&self, call: u32, token: u64) -> Option<u64> {
        self.change(call, token, |value| value).await
    }

    /// Writes what follows the value that was read. False for a token that is too low.
    pub(crate) async fn write(&self, call: u32, token: u64, read: u64) -> bool {
        self.change(call, token, |_| read + 1).await.is_some()
    }

    async fn change(&self, call: u32, token: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        // Another process may be stopped while it has the file, so a body waits at an await, where it hears of a loss.
        while self.file.try_lock().is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let last = self.last();
        let accepted = last.is_none_or(|[_, seen, ..]| seen <= token);
        let value = change(last.map_or(0, |[.., value]| value));
        if accepted {
            let line = [now().as_nanos(), token, self.process.into(), call.into(), value];
            let text = line.map(|number| format!("{number:020}")).join(" ") + "\n";
            self.record.writes(&self.file, &text);
        }
        self.file.unlock().unwrap();
        accepted.then_some(value)
    }

    fn last(&self) -> Option<[u64; 5]> {
        let mut text = [0; LINE];
        (&self.file).seek(SeekFrom::End(-(LINE as i64))).ok()?;
        (&self.file).read_exact(&mut text).unwrap();
        Some(parse(std::str::from_utf8(&text).unwrap()))
    }
}

fn parse(line: &str) -> [u64; 5] {
    let mut words = line.split_whitespace();
    [(); 5].map(|()| words.next().unwrap().parse().unwrap())
}

/// The writes of all registers of a folder, as events.
pub(crate) fn writes(folder: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().starts_with(NAME) {
            continue;
        }
        let mut reads = std::collections::BTreeMap::new();
        for line in fs::read_to_string(entry.path()).unwrap().lines() {
            let [at, _, process, call, value] = parse(line);
            // The first line of a call is its read.
            let Some(read) = reads.insert(call, value) else { continue };
            let (process, call) = (process as u32, call as u32);
            events.push(Event { at, process, call, what: What::Writes { read, wrote: value } });
        }
    }
    events
}
