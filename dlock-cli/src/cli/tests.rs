//! The words of the command line go together, and mean what they mean in the attribute.

use clap::CommandFactory;

use super::*;

#[test]
fn the_words_of_the_command_line_go_together() {
    Cli::command().debug_assert();
}

#[test]
fn values_are_written_as_in_the_attribute() {
    let parse = |words: &[&str]| Cli::try_parse_from([&["dlock", "run"], words, &["key", "--", "true"]].concat());
    let Command::Run(run) = parse(&["--ttl", "1m30s", "--wait", "none", "--mode", "permits(3)"]).unwrap().command
    else {
        panic!("it is `run`")
    };
    assert_eq!(
        (run.ttl, run.wait, run.mode),
        (Duration::from_secs(90), Wait::None, Mode::Permits(3.try_into().unwrap()))
    );
    for (words, said) in [
        (["--ttl", "30"], "30s"),
        (["--wait", "0s"], "not to wait is `--wait none`"),
        (["--mode", "permits(0)"], "permits(3)"),
        (["--renew", "0s"], "`--renew false`"),
        (["--retry", "0"], "false"),
        (["--attempts", "0"], "1 or more"),
    ] {
        let error = parse(&words).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// Of the first table of `docs/options.md`.
#[test]
fn run_has_the_options_of_the_attribute_by_their_names() {
    // They are about functions of one process, or have exit codes, `DLOCK_TOKEN` and the store's own options in their place.
    let without = ["keys", "max_waiters", "cohort", "reentrant", "on_busy", "on_outage", "guard", "fence", "crate"];
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/options.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    let options: Vec<_> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
    assert!(options.len() > 20, "{options:?}");
    let mut command = Cli::command();
    command.build();
    let run = command.find_subcommand("run").unwrap();
    let has = |option: &str| run.get_arguments().any(|arg| arg.get_id() == option);
    for option in options {
        assert_eq!(has(option), !without.contains(&option), "{option}");
    }
}

#[test]
fn what_comes_after_the_key_belongs_to_the_command() {
    let cli = Cli::try_parse_from(["dlock", "run", "key", "ls", "--json", "-v"]).unwrap();
    let Command::Run(run) = cli.command else { panic!("it is `run`") };
    assert_eq!(run.command, ["ls", "--json", "-v"]);
    assert!(!cli.json && !cli.verbose);
}
