//! A flash sale: four processes, a thousand buyers, a hundred things to sell.
//!
//! ```text
//! cargo run --example flash_sale                                    # nothing to install
//! cargo run --example flash_sale -- --url redis://127.0.0.1:6379    # the lock on a real Redis
//! ```
//!
//! The same shop opens twice. Each buyer looks at the stock, thinks for a moment, and writes down what is left. Without
//! a lock many buyers see the same stock and the shop sells what it does not have. Then `#[distributed_lock]` is put
//! on the very same function. The program counts again from the ledger of purchases, and exits with an error if the
//! lock failed, or if the shop without a lock did not oversell, since then nothing was shown.
//!
//! Begin with `buyer.rs`: the rest only starts processes and counts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to the person who runs it")]

mod args;
mod buyer;
#[path = "../common/mod.rs"]
mod common;
mod report;
mod sale;
mod shop;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use crate::args::{Args, Ask};
use crate::common::{Failure, Stage};
use crate::report::table;
use crate::sale::{Sale, sell};

fn main() -> ExitCode {
    let result = match common::job() {
        Some(job) => worker::work(job),
        None => match args::parse(std::env::args().skip(1)) {
            Ok(Ask::Run(args)) => run(&args),
            Ok(Ask::Help) => {
                println!("{}", args::USAGE);
                return ExitCode::SUCCESS;
            }
            Err(mistake) => {
                eprintln!("{mistake}\n\n{}", args::USAGE);
                return ExitCode::from(2);
            }
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if is_bad_url(&failure) => {
            eprintln!("{failure}\n\n{}", args::USAGE);
            ExitCode::from(2)
        }
        Err(failure) => {
            eprintln!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(args: &Args) -> Result<(), Failure> {
    let stage = Stage::new(common::Args { url: args.url.clone(), unlocked: false })?;
    // The workers are killed and the folder is removed on every way out.
    tokio::select! {
        biased;
        interrupt = tokio::signal::ctrl_c() => interrupt.map_err(Failure::from).and(Err("interrupted".into())),
        result = both_sales(args, &stage) => result,
    }
}

async fn both_sales(args: &Args, stage: &Stage) -> Result<(), Failure> {
    let Args { workers, buyers, stock, .. } = *args;
    // One clear word about a wrong URL now, not one from each worker later.
    dlock::connect("main", stage.url()).await?;
    dlock::shutdown(Duration::ZERO).await;

    println!("{buyers} buyers in {workers} processes, {stock} things to sell, lock on {}\n", scheme(stage.url()));
    let without = sell("without lock", stage, args, false).await?;
    let with = sell("with lock", stage, args, true).await?;
    println!("{}\n", table(stock, &[&without, &with]));
    judge(stock, &without, &with)
}

/// Checks that the shop oversold without the lock, and kept its promises with it.
fn judge(stock: u32, without: &Sale, with: &Sale) -> Result<(), Failure> {
    if let Some(broken) = with.count.broken_promise(stock) {
        return Err(format!("with the lock, {broken}").into());
    }
    if with.bought() != with.count.sold() {
        return Err("with the lock, the buyers have bought something else than the ledger says".into());
    }
    if without.count.oversold(stock) == 0 {
        return Err("without the lock the shop did not oversell: this run has shown nothing".into());
    }
    println!(
        "Without the lock {} of {stock} were sold. With it {stock}, none left, and the tokens in the ledger rise from {}.",
        without.count.sold(),
        with.count.token_range(),
    );
    Ok(())
}

fn is_bad_url(failure: &Failure) -> bool {
    let error = failure.downcast_ref::<dlock::Error>();
    error.is_some_and(|error| matches!(error.kind(), dlock::ErrorKind::ConfigInvalid { .. }))
}

/// All that is ever shown of a URL: the rest may hold a password.
fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}
