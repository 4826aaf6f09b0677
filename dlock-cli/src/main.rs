//! The program `dlock`: runs commands under a distributed lock, and shows, waits for and breaks locks, from the shell.
//!
//! It uses only the public interface of dlock.

mod break_hold;
mod cli;
mod console;
mod doctor;
mod exit;
mod find;
mod leaders;
mod ls;
mod output;
mod run;
mod show;
mod sites;
mod store;
mod trials;
mod wait;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use exit::{Exit, Failure};
use output::print;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(followed) = run::supervisor::supervise() {
        return followed.map_or_else(|failure| report(&failure), ExitCode::from);
    }
    // The child of `dlock run` begins as this program: see `run::starter`.
    if let Some(failure) = run::starter::become_child() {
        return report(&failure);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is no reason to fail.
            let _ = error.print();
            return if error.use_stderr() { Exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    if cli.verbose {
        log_to_stderr();
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::new(Exit::INTERNAL, format!("no runtime: {error}"))),
    };
    // One thread: the death of the thread that starts a child ends the child on Linux, and this one lives as long as the process.
    match runtime.block_on(command(cli)) {
        Ok(code) => code.into(),
        Err(failure) => report(&failure),
    }
}

/// dlock's own lines in full, and the warnings of libraries; or what `RUST_LOG` says.
fn log_to_stderr() {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let levels = wanted
        .unwrap_or_else(|| Targets::new().with_target("dlock", LevelFilter::DEBUG).with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let _ = tracing_subscriber::registry().with(lines).with(levels).try_init();
}

fn report(failure: &Failure) -> ExitCode {
    output::note(failure.text());
    failure.exit().into()
}

async fn command(cli: Cli) -> Result<Exit, Failure> {
    let Cli { store, json, verbose: _, command } = cli;
    match command {
        Command::Run(_) | Command::Watch(_) | Command::Completions { .. } | Command::Man { .. } if json => {
            Err(Failure::usage(
                "`run` prints what its command prints, `watch` draws a screen, `completions` prints a script, and `man` \
                 writes files: none of them has JSON",
            ))
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "dlock", &mut text);
            print(&String::from_utf8_lossy(&text)).map(|()| Exit::OK)
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
                .map_err(|error| Failure::new(Exit::USAGE, format!("{}: {error}", folder.display())))?;
            Ok(Exit::OK)
        }
        Command::Sites { file } => sites::show(&file, json),
        Command::Run(run) => run::run(&store, run).await,
        Command::Ls(ls) => ls::list(&store, &ls, json).await,
        Command::Show(show) => show::show(&store, &show, json).await,
        Command::Watch(watch) => watch::watch(&store, &watch).await,
        Command::Console(words) => console::serve(&store, words, json).await,
        Command::Wait(wait) => wait::wait(&store, &wait, json).await,
        Command::Break(order) => break_hold::break_hold(&store, &order, json).await,
        Command::Doctor(doctor) => doctor::examine(store, doctor, json).await,
        Command::Leaders(leaders) => leaders::show(&store, &leaders, json).await,
    }
}
