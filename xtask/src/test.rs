//! `cargo xtask test`: everything that tests, against one private set of servers. With a store's name: the tests of that
//! store's crate, against the servers that they start.

use std::thread;

use dlock_testkit::servers::SharedSet;

use crate::failures;
use crate::log::Log;
use crate::parts::Parts;
use crate::repeat::repeat;
use crate::sh::{Result, cargo, root, run};
use crate::side_by_side::{Verdict, side_by_side};
use crate::workspace::{ALL, ETCD, THOROUGH, Workspace};
use crate::{package, servers};

/// The arguments of `cargo xtask test`: which tests run, and how often.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words<'a> {
    all: bool,
    times: Option<usize>,
    store: Option<&'a str>,
    filter: &'a [&'a str],
}

impl<'a> Words<'a> {
    fn of(words: &'a [&'a str]) -> std::result::Result<Self, String> {
        match words {
            [] => Ok(Self::default()),
            ["--", filter @ ..] => Ok(Self { filter, ..Self::default() }),
            ["--all", words @ ..] => Ok(Self { all: true, ..Self::of(words)? }),
            ["--repeat", times, words @ ..] => {
                let count = times.parse().ok().filter(|times| *times > 0);
                let count = count.ok_or_else(|| format!("`--repeat {times}`: how often is a number from 1"))?;
                Ok(Self { times: Some(count), ..Self::of(words)? })
            }
            [word, ..] if word.starts_with('-') => {
                Err(format!("`{word}` is not understood: a filter comes after `--`"))
            }
            [store, words @ ..] => match Self::of(words)? {
                Self { store: Some(word), .. } => Err(format!("`{word}` is not understood: a filter comes after `--`")),
                others => Ok(Self { store: Some(store), ..others }),
            },
        }
    }
}

/// Runs the tests and reports how long each part took. The words are `[--all] [--repeat N] [STORE] [-- FILTER]`.
pub(crate) fn test(words: &[&str]) -> Result {
    let words = Words::of(words)?;
    let workspace = Workspace::of(root())?;
    if let Some(store) = words.store.filter(|store| !workspace.is_store(store)) {
        let stores: Vec<_> = workspace.stores().collect();
        return Err(format!("`{store}` is not a store; the stores are {}", stores.join(", ")).into());
    }
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = match words.store {
        None => add_all_to(&mut parts, &words),
        Some(store) => add_store_to(&mut parts, store, &words),
    };
    parts.finish()
}

/// The parts for one store. Its tests start the servers that they need, each on first use.
fn add_store_to(parts: &mut Parts, store: &str, words: &Words<'_>) -> Result {
    parts.run("servers", || servers::run_for(store))?;
    let package = format!("dlock-{store}");
    parts.run("build", || run(&mut cargo(&["test", "--package", &package, "--all-features", "--no-run"])))?;
    let tests = |log: &Log| {
        let mut tests = cargo(&["test", "--package", &package, "--all-features", "--no-fail-fast", "--"]);
        tests.args(words.filter);
        if words.all {
            tests.env(ALL, "1")
        } else {
            tests.args(["--skip", THOROUGH])
        };
        log.takes_errors_of(&mut tests)?;
        let failed = failures::run(&mut tests, |line| log.line(line))?;
        let failed = failed.map(|failures| ("the tests".to_owned(), failures));
        Ok(Verdict { failed: failed.into_iter().collect(), ..Verdict::default() })
    };
    match words.times {
        None => parts.run("tests", || tests(&Log::Terminal)?.into_result()),
        Some(times) => repeat(parts, times, tests),
    }
}

/// The parts of a plain `cargo xtask test`, up to the first that fails.
pub(crate) fn add_to(parts: &mut Parts) -> Result {
    add_all_to(parts, &Words::default())
}

fn add_all_to(parts: &mut Parts, words: &Words<'_>) -> Result {
    parts.run("packages of this machine", servers::run_first)?;
    parts.run("build, and servers beside it", build_and_servers)?;
    // A filter asks for some tests alone. `cargo xtask ci` does it in any case.
    if words.all && words.filter.is_empty() {
        parts.run("packages", package::packaged)?;
    }
    if let Some(times) = words.times {
        return repeat(parts, times, |log| side_by_side(&SharedSet::start()?, words.filter, words.all, log));
    }
    with_servers(parts, |parts, set| {
        parts.run("tests", || side_by_side(set, words.filter, words.all, &Log::Terminal)?.into_result())
    })
}

/// Servers come over the network, for which a build need not wait.
fn build_and_servers() -> Result {
    thread::scope(|scope| {
        let servers = scope.spawn(|| servers::run_later().map_err(|error| error.to_string()));
        // As the tests are built later. `cargo build` would build half of it once more, since the units of a package that depends
        // on itself differ. `cargo xtask ci` compiles the benchmarks.
        let built = run(&mut cargo(&["test", "--workspace", "--features", ETCD, "--no-run"]));
        servers.join().map_err(|_| "the installation of the servers panicked")??;
        built
    })
}

/// Does `work` while a set of servers runs. They end with this process too, however it ends.
pub(crate) fn with_servers(parts: &mut Parts, work: impl FnOnce(&mut Parts, &SharedSet) -> Result) -> Result {
    let set = parts.run("start of the servers", || {
        let set = SharedSet::start()?;
        set.env().for_each(|(variable, url)| eprintln!("  {variable}={url}"));
        Ok(set)
    })?;
    let done = work(parts, &set);
    parts.run("end of the servers", || {
        drop(set);
        Ok(())
    })?;
    done
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn the_words_say_what_to_run_and_how_often() {
        assert_eq!(Words::of(&[]), Ok(Words::default()));
        let words = ["--all", "--repeat", "3", "redis", "--", "--exact", "a"];
        let all = Words { all: true, times: Some(3), store: Some("redis"), filter: &words[5..] };
        assert_eq!(Words::of(&words), Ok(all));
        let words = ["redis", "--repeat", "3"];
        assert_eq!(Words::of(&words), Ok(Words { times: Some(3), store: Some("redis"), ..Words::default() }));
        // After `--` all belongs to the tests.
        let words = ["--", "--all"];
        assert_eq!(Words::of(&words), Ok(Words { filter: &words[1..], ..Words::default() }));
    }

    #[test]
    fn words_that_are_not_understood_are_named() {
        for (words, named) in [
            (&["redis", "etcd"][..], "`etcd`"),
            (&["--exact", "a"], "`--exact`"),
            (&["--repeat", "0"], "`--repeat 0`"),
            (&["--repeat", "often"], "`--repeat often`"),
            (&["--repeat"], "`--repeat`"),
        ] {
            let error = Words::of(words).unwrap_err();
            assert!(error.starts_with(named), "{words:?}: {error}");
        }
    }
}
