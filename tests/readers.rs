//! The readers of foreign text: URLs, keys, notes, values, tunings, replies. Whatever the text is, they end with an answer.
//!
//! `cargo +nightly fuzz run TARGET` (in `fuzz/`) looks for more; what it finds is kept in `fuzz/corpus`, and runs here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is a library for cargo-fuzz")]
mod targets;

use std::fs;
use std::panic;
use std::path::Path;

use dlock::{Key, LockKey};
use proptest::prelude::*;

/// How many changes of its corpus each target gets.
const CHANGES: usize = 3_000;

/// The highest byte that is drawn. A target for texts ends at once with bytes that are no text.
const TEXT: u8 = 127;
const BYTES: u8 = 255;

/// Runs a target over its corpus, and over changes of it with bytes up to the highest one.
fn holds(name: &str, target: fn(&[u8]), highest: u8) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = fs::read_dir(&folder).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
    let corpus: Vec<Vec<u8>> = files.collect();
    assert!(!corpus.is_empty(), "{} is empty", folder.display());
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let runs = |input: &[u8]| {
        let shown = String::from_utf8_lossy(input);
        assert!(panic::catch_unwind(|| target(input)).is_ok(), "{name}, seed {seed}: {shown:?}");
    };
    corpus.iter().for_each(|input| runs(input));
    for _ in 0..CHANGES {
        runs(&changed(&corpus, highest, &mut random));
    }
}

/// One input with parts that are changed, lost, doubled or taken from another.
fn changed(corpus: &[Vec<u8>], highest: u8, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = random.choice(corpus).unwrap().clone();
    for _ in 0..random.usize(1..5) {
        let from = random.usize(..=input.len());
        let to = input.len().min(from + random.usize(..6));
        let part = match random.u8(..4) {
            0 => Vec::new(),
            1 => input[from..to].repeat(2),
            2 => (from..to).map(|_| random.u8(..=highest)).collect(),
            _ => {
                let other = random.choice(corpus).unwrap();
                let start = random.usize(..=other.len());
                other[start..other.len().min(start + random.usize(..12))].to_vec()
            }
        };
        input.splice(from..to, part);
    }
    input
}

#[test]
fn no_url_ends_the_program_or_shows_a_password() {
    holds("url", targets::url, TEXT);
}

#[test]
fn no_key_ends_the_program_and_each_is_read_back() {
    holds("key", targets::key, TEXT);
}

#[test]
fn no_note_ends_the_program_or_a_line() {
    holds("note", targets::note, BYTES);
}

#[test]
fn no_value_ends_the_program() {
    holds("value", targets::value, TEXT);
}

#[test]
fn no_tuning_ends_the_program() {
    holds("tuning", targets::tuning, TEXT);
}

#[test]
fn no_reply_of_a_redis_ends_the_program() {
    holds("redis_reply", targets::redis_reply, BYTES);
}

/// Values in one form of a key: `<>:<>` and `<>-`.
fn full(values: &(String, String, Option<u64>)) -> Option<LockKey> {
    let key = Key::text("a:").value(&values.0).and_text(":").value(&values.1).and_text("-").value(&values.2);
    LockKey::new("shop", key).ok()
}

proptest! {
    #[test]
    fn other_values_are_another_lock(one in any::<(String, String, Option<u64>)>(), other in any::<(String, String, Option<u64>)>()) {
        let (first, second) = (full(&one), full(&other));
        prop_assert!(first.is_none() || (first == second) == (one == other), "{first:?} {second:?}");
    }

    /// Neighbours: what differs in a separator, an escape or a case alone.
    #[test]
    fn values_that_look_alike_are_other_locks(one in "[<>:%-aA ]{0,4}", two in "[<>:%-aA ]{0,4}", three in "[<>:%-aA ]{0,4}") {
        let names = [(&one, &two), (&two, &one), (&one, &three), (&three, &two)]
            .map(|(a, b)| ((a, b), full(&(a.clone(), b.clone(), None)).unwrap()));
        for (values, name) in &names {
            for (others, other) in &names {
                prop_assert_eq!(values == others, name == other, "{} {}", name, other);
            }
        }
    }

    #[test]
    fn a_duration_that_is_written_is_read(numbers in prop::collection::vec(0..1000_u32, 5)) {
        let units = [(24 * 3_600_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
        let parts = || units.iter().zip(&numbers).filter(|(_, number)| **number > 0);
        let written: String = parts().map(|((_, unit), number)| format!("{number}{unit}")).collect();
        let ms = parts().map(|((ms, _), number)| ms * u64::from(*number)).sum();
        prop_assert_eq!(dlock_values::duration(&written).ok(), (ms > 0).then(|| std::time::Duration::from_millis(ms)));
    }
}
