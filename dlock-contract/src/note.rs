//! The note beside every owner: the host, process and site of the holder.

use std::fmt;
use std::sync::LazyLock;

/// The holder of a lock for people: host, process, site, start time and a trace id. At most 256 bytes, never a secret.
///
/// Stored beside the owner in every store, as `h=… p=… s=… t=… x=… e=… k=…`; part of the storage format since version 1. Programs pass
/// over fields that they do not know.
#[derive(Clone, PartialEq, Eq)]
pub struct Note(Box<str>);

/// The longest note.
pub const MAX_NOTE_BYTES: usize = 256;

impl Note {
    /// In place of a note, where a foreign client holds the lock. The client's value may be a secret that frees the
    /// lock.
    pub const FOREIGN_CLIENT: &str = "not a lock of dlock's: a foreign client holds it";

    /// The note of this process for one site. `trace` may be empty.
    pub fn new(pid: u32, site: &str, since_ms: u64, trace: Option<&str>) -> Self {
        static HOST: LazyLock<String> = LazyLock::new(host);
        let trace = trace.filter(|trace| !trace.is_empty());
        // Made for every acquisition and kept with the hold, so in one string of just its size, unless something is cut, and
        // without `format!`: the names have 11 bytes.
        let numbers = digits(u64::from(pid)) + digits(since_ms);
        let traced = trace.map_or(0, |trace| trace.len() + 3);
        let mut note = String::with_capacity(11 + HOST.len() + site.len() + numbers + traced);
        note.push_str("h=");
        push_plain(&mut note, &HOST, 64);
        note.push_str(" p=");
        push_number(&mut note, u64::from(pid));
        note.push_str(" s=");
        push_plain(&mut note, site, 80);
        note.push_str(" t=");
        push_number(&mut note, since_ms);
        if let Some(trace) = trace {
            note.push_str(" x=");
            push_plain(&mut note, trace, 64);
        }
        Self(note.into())
    }

    /// The note of a candidate of an election, so that a list of all locks shows which of them are leaderships.
    #[must_use]
    pub fn of_election(self) -> Self {
        Self((self.0.into_string() + " e=1").into())
    }

    /// The note of a lock whose key is sensitive, so that a process that breaks the hold keeps the key out of its log too.
    #[must_use]
    pub fn of_sensitive(self) -> Self {
        Self((self.0.into_string() + " k=1").into())
    }

    /// Reads a note back. Anything is taken, also what another release or a stranger wrote: it is only shown.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(plain_line(text).into())
    }

    /// The note as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host of the holder.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.field("h=")
    }

    /// The holder's process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.field("p=")?.parse().ok()
    }

    /// The annotated function, or the name given to the builder.
    #[must_use]
    pub fn site(&self) -> Option<&str> {
        self.field("s=")
    }

    /// When the holder began to ask, in milliseconds since 1970 by its own clock. For people: nothing is decided by it.
    #[must_use]
    pub fn since_ms(&self) -> Option<u64> {
        self.field("t=")?.parse().ok()
    }

    /// The holder's trace id, if it gave one.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.field("x=")
    }

    /// Whether the lock is an election. Notes of older programs do not say so.
    #[must_use]
    pub fn is_election(&self) -> bool {
        self.field("e=").is_some()
    }

    /// Whether the holder wants the key in no log.
    #[must_use]
    pub fn is_sensitive(&self) -> bool {
        self.field("k=").is_some()
    }

    /// The host and the process, `web-3:4711`. A foreign client's text is shown as it is.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.host(), self.pid()) {
            (Some(host), Some(pid)) => format!("{host}:{pid}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => self.0.to_string(),
        }
    }

    /// The holder in words: `web-3, shop::deduct, for 12 s`.
    ///
    /// `now_ms` is the reader's wall clock. The time is left out where the two clocks cannot both be right.
    #[must_use]
    pub fn in_words(&self, now_ms: u64) -> String {
        let (Some(host), Some(site)) = (self.host(), self.site()) else { return self.0.to_string() };
        let since = self.since_ms().and_then(|since| now_ms.checked_sub(since));
        let since = since.filter(|ms| *ms < 366 * 24 * 3_600_000).map(|ms| format!(", for {} s", ms / 1000));
        format!("{host}, {site}{}", since.unwrap_or_default())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.split(' ').find_map(|field| field.strip_prefix(name))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Note({})", self.0)
    }
}

/// Printable ASCII without blanks, at most `max` bytes; what is cut is the beginning, since a path ends in its name.
fn push_plain(out: &mut String, text: &str, max: usize) {
    if text.len() <= max && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return out.push_str(text);
    }
    let clean: String = text.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    out.push_str(&clean[clean.len().saturating_sub(max)..]);
}

const fn digits(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

fn push_number(out: &mut String, number: u64) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

pub(crate) fn plain_line(text: &str) -> String {
    text.chars().take(MAX_NOTE_BYTES).map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '_' }).collect()
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back() {
        let note = Note::new(std::process::id(), "shop::deduct", 17, Some("4bf9"));
        let read = Note::from_stored(note.as_str());
        assert_eq!(read, note);
        assert_eq!(read.pid(), Some(std::process::id()));
        assert_eq!(read.site(), Some("shop::deduct"));
        assert_eq!(read.since_ms(), Some(17));
        assert_eq!(read.trace(), Some("4bf9"));
        assert!(read.host().is_some_and(|host| !host.is_empty()));
        assert!(!read.is_election() && !read.is_sensitive());
        let read = Note::from_stored(note.of_election().of_sensitive().as_str());
        assert!(read.is_election() && read.is_sensitive() && read.trace() == Some("4bf9"), "{read}");
    }

    #[test]
    fn a_note_is_told_in_words() {
        let note = Note::from_stored("h=web-3 p=17 s=shop::deduct t=1000");
        assert_eq!(note.in_words(13_500), "web-3, shop::deduct, for 12 s");
        assert_eq!(note.in_words(999), "web-3, shop::deduct");
        assert_eq!(note.place(), "web-3:17");
        assert_eq!(Note::from_stored("h=web-3").place(), "web-3");
        assert_eq!(Note::from_stored(Note::FOREIGN_CLIENT).place(), Note::FOREIGN_CLIENT);
        assert_eq!(Note::from_stored(Note::FOREIGN_CLIENT).in_words(1), Note::FOREIGN_CLIENT);
    }

    #[test]
    fn a_note_stays_short_and_plain() {
        let note = Note::new(1, &"é\n x".repeat(200), u64::MAX, Some(&"t".repeat(500)));
        assert!(note.as_str().len() <= MAX_NOTE_BYTES, "{}", note.as_str().len());
        assert!(note.as_str().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
        assert!(Note::from_stored(&"\u{1b}[2J".repeat(500)).as_str().len() <= MAX_NOTE_BYTES);
    }
}
