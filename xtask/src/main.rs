//! The tasks of this workspace: `cargo xtask TASK`.

mod apt;
mod pins;
mod servers;
mod sh;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask TASK

  servers                    check the servers that the tests need, install what is missing
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["servers"] => servers::run(),
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
