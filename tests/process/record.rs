//! The records: what each process saw, one line for each event. A line is one write that is done before the event has an effect, so
//! `kill -9` loses none. The times are those of the clock that goes on in suspend, which all processes of a host share.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use dlock_sim::{Event, What};
use serde::{Deserialize, Serialize};

use crate::arena::now;
use crate::faults::Weight;
use crate::register;

/// As soon as this file is in the folder, workers come to their end.
const CALM: &str = "calm";

/// A process that does not go on for longer than this stands still.
const LATE: Duration = Duration::from_millis(30);

/// One line of a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// An event that a worker saw.
    Saw(Event),
    /// A process is killed from then on, and dead as soon as this stands here.
    Killed { at: u64, process: u32 },
    /// From here on the store may have forgotten who holds the lock of this key; without one, of all keys. With a process, it has
    /// forgotten the holds of that one alone.
    Forgets { at: u64, key: Option<u32>, process: Option<u32> },
    /// A fault that the nemesis made.
    Fault { at: u64, text: String },
    /// The end of that.
    Over { at: u64, text: String },
    /// A worker weighs so much.
    Weighs { at: u64, process: u32, weight: Weight },
    /// A leftover in the store when all had ended.
    Left { at: u64, text: String },
}

impl Line {
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Saw(event) => event.at,
            Self::Killed { at, .. }
            | Self::Forgets { at, .. }
            | Self::Fault { at, .. }
            | Self::Over { at, .. }
            | Self::Weighs { at, .. }
            | Self::Left { at, .. } => *at,
        }
    }
}

/// The file of one process.
pub(crate) struct Record {
    file: File,
    process: u32,
}

impl Record {
    /// The record of a process in a folder. The nemesis has the number zero.
    pub(crate) fn new(folder: &Path, process: u32) -> Self {
        let path = folder.join(format!("{process}.jsonl"));
        Self { file: OpenOptions::new().create(true).append(true).open(path).unwrap(), process }
    }

    /// An event of a call that happens now.
    pub(crate) fn add(&self, call: u32, what: What) {
        self.add_at(now().as_nanos(), call, what);
    }

    pub(crate) fn add_at(&self, at: u64, call: u32, what: What) {
        self.line(&Line::Saw(Event { at, process: self.process, call, what }));
    }

    pub(crate) fn line(&self, line: &Line) {
        self.writes(&self.file, &text_of(line));
    }

    /// Writes to a file, and notes the time if the disk keeps the thread of all callers waiting.
    pub(crate) fn writes(&self, mut file: &File, text: &str) {
        let before = now();
        file.write_all(text.as_bytes()).unwrap();
        let after = now();
        if after.since(before) > LATE {
            let stands = What::Stands { until: after.as_nanos() };
            let event = Event { at: before.as_nanos(), process: self.process, call: 0, what: stands };
            (&self.file).write_all(text_of(&Line::Saw(event)).as_bytes()).unwrap();
        }
    }

    /// Notes the times in which this process does not get a core. Returns never.
    pub(crate) fn watch(&self) {
        loop {
            let before = now();
            thread::sleep(LATE / 3);
            let late = now().since(before);
            if late > LATE {
                self.add_at(before.as_nanos(), 0, What::Stands { until: now().as_nanos() });
            }
        }
    }
}

fn text_of(line: &Line) -> String {
    serde_json::to_string(line).unwrap() + "\n"
}

/// All lines of a folder, in the order of time.
pub(crate) fn read(folder: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = fs::read_to_string(&path).unwrap();
            // A line that a kill cut short does not count.
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            lines.extend(whole.map(|line| serde_json::from_str::<Line>(line).unwrap()));
        }
    }
    lines.extend(register::writes(folder).into_iter().map(Line::Saw));
    lines.sort_by_key(Line::at);
    lines
}

/// Tells the workers of the folder to come to their end.
pub(crate) fn calm(folder: &Path) {
    fs::write(calm_file(folder), "").unwrap();
}

pub(crate) fn is_calm(folder: &Path) -> bool {
    calm_file(folder).exists()
}

fn calm_file(folder: &Path) -> PathBuf {
    folder.join(CALM)
}
