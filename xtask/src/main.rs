//! The tasks of this workspace: `cargo xtask TASK`.

mod apt;
mod bench;
mod browser;
mod chart;
mod ci;
mod failures;
mod faults;
mod go;
mod interop;
mod lines;
mod log;
mod matrix;
mod maven;
mod memory_folder;
mod mutants;
mod package;
mod parts;
mod peers;
mod portable;
mod repeat;
mod servers;
mod sh;
mod side_by_side;
mod sim;
mod test;
mod tidy;
mod tidy_planted;
mod tidy_stores;
mod tree;
mod workspace;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask TASK

  servers                           check the servers that the tests need, install what is missing
  test [--all] [--repeat N] [STORE] [-- FILTER]
                                    servers, build, all tests against one private set of servers; with the name of a store
                                    (a folder of backends/) the tests of that crate alone, with the servers that it needs;
                                    with --all also what repeats a proof on a further server, and what takes long;
                                    with --repeat the tests N times, with the count of each failure and logs in target/
  ci                                lint, cargo-deny, test: what has to pass before a merge
  lint                              format, clippy for every feature, docs, tidy
  package                           pack everything as it would be published, and run a small program against that
  portable                          check for macOS and Windows, and with the oldest Rust of the crates for authors of stores;
                                    needs Debian 12 and the network
  interop                           real clients of other languages beside ours; installs Go, Java and Maven if they are missing
  browser                           the console's page in a real browser, and its pictures in docs/; installs Chromium if it is missing
  mutants                           break the engine on purpose, which tests should notice; takes hours, goes on when run again
  sim --seeds N [--from S]          simulate the engine, one history for each seed, and check the histories; `sim` alone tells more words
  faults --store S [--minutes N] [--seed S]
                                    random faults on a real server and on workers, whose histories the checker of the simulation judges;
                                    with --check FOLDER the histories of a run again; `faults --all [--minutes N] [--seed S]` runs
                                    on each store, writes docs/reliability.md, and goes on when run again
  matrix                            docs/fault-matrix.md from the results of the last whole run of `test`
  tidy                              the rules of this repository that no other tool knows
  lines                             the lines with code of each crate and of its tests
  bench [ROW..] [--quick] [--runs N] [--list] [--json] [--write] [--chart]  the benchmark table, against a private set of servers

Set DLOCK_SERVERS to keep unpacked servers elsewhere than in the user's cache folder. `test` and `ci` keep the data of the servers
in /dev/shm if the machine has 8 GiB of free memory; set TMPDIR to keep them elsewhere.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Err(error) = env::set_current_dir(sh::root()) {
        eprintln!("xtask: the workspace is no longer at {}: {error}", sh::root().display());
        return ExitCode::FAILURE;
    }
    let done = match words[..] {
        ["servers"] => servers::run(),
        ["test", ref words @ ..] => memory_folder::use_memory().and_then(|()| test::test(words)),
        ["ci"] => memory_folder::use_memory().and_then(|()| ci::all()),
        ["lint"] => ci::lint(),
        ["package"] => package::packaged(),
        ["portable"] => portable::run_portable(),
        ["interop"] => interop::run_interop(),
        ["browser"] => browser::run_browser(),
        ["mutants"] => mutants::run_mutants(),
        ["sim", ref words @ ..] => sim::run_sim(words),
        ["faults", ref words @ ..] => faults::run_faults(words),
        ["matrix"] => matrix::matrix(),
        ["tidy"] => tidy::run(),
        ["lines"] => lines::lines(),
        ["bench", ref arguments @ ..] => bench::run_bench(arguments),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
