//! The words of the command line. Options of a lock have the names and the forms that they have in the attribute.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use dlock::{Backoff, HoldId, Mode, Renew, Retry, Wait};

const AFTER_HELP: &str = "\
Somebody holds a lock that you need:
  dlock ls
      which locks are held
  dlock show KEY
      who holds it, since when, how to see whether it lives, and its hold id
  dlock doctor
      whether the store itself is the reason
  dlock break KEY --hold ID --why TEXT
      ends that hold, after a question (without a terminal: --yes). Stop the holder first if you can

Put a key with <> into quotes: 'stock:<42>'. A holder is shown as host:process.

Exit codes:
  0        done; `run`: the command has succeeded
  1        no: nobody holds the lock, or the hold is no longer there
  64       bad usage
  69       the store does not answer
  70       another error
  75       the lock is busy, or the run of this period has begun elsewhere (`run --busy-code`)
  76       the lock was lost (`run --lost-code`)
  77       a right is missing in the store
  124      `run --timeout` is over
  126, 127 `run`: the command cannot be executed, or does not exist
  128+N    `run`: signal N has ended the command
  others   `run`: the exit code of the command";

/// Below the help of a command.
const CODES: &str = "Exit codes: see dlock --help";

const AFTER_SHOW: &str = "\
Show it again after some seconds. If the lease left has fallen by less than the time that has passed, \
the holder lives and has renewed it. If it falls with the clock for a third of the ttl (10 s of the usual \
30 s, 20 minutes of an hour), the holder is dead, paused or cut off, or its lock is never renewed; the \
lock is free when the lease ends.

Exit codes: see dlock --help";

const AFTER_BREAK: &str = "\
Stop the holder first if you can. It hears of the break at its next renewal, after a third of its ttl \
at the latest. Until then two processes may work under the lock, unless the resource compares fencing tokens.

Exit codes: see dlock --help";

/// Distributed locks from the shell, on every store of dlock.
///
/// The store is that of DLOCK_URL or --url; without them it is one of the services' own variables, DLOCK_URL_<NAME>.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, after_help = AFTER_HELP, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Prints JSON instead of a table; run, watch, completions and man have none
    #[arg(long, global = true, help_heading = "Global")]
    pub(crate) json: bool,
    /// Writes the log of dlock to standard error
    #[arg(long, short, global = true, help_heading = "Global")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The store, and the part of it that is meant.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// The store's URL, such as redis://127.0.0.1/. Put a URL with a password into DLOCK_URL or a file
    #[arg(long, global = true, help_heading = "Store", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A file whose first line is the store's URL
    #[arg(long, global = true, help_heading = "Store", value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
    /// The store that DLOCK_URL_<NAME> names
    #[arg(long, global = true, help_heading = "Store", value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// The first part of every key. Default: default
    #[arg(long, global = true, help_heading = "Store", env = "DLOCK_NAMESPACE", value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// One command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while it holds a lock
    #[command(override_usage = "dlock run [OPTIONS] <KEY> -- <COMMAND>...", after_help = CODES)]
    Run(Box<RunArgs>),
    /// Lists the locks that are held
    #[command(after_help = CODES)]
    Ls(LsArgs),
    /// Shows who holds a lock, since when, its hold id, and, where the store knows them, who waits
    #[command(override_usage = "dlock show [OPTIONS] <KEY>", after_help = AFTER_SHOW)]
    Show(ShowArgs),
    /// Watches the locks of a store, live on the terminal
    Watch(WatchArgs),
    /// Serves a live page of the locks, for a browser on this host
    Console(ConsoleArgs),
    /// Waits until nobody holds a lock
    #[command(after_help = CODES)]
    Wait(WaitArgs),
    /// Ends a hold of a lock; the holder hears of it and its error says who and why
    #[command(override_usage = "dlock break [OPTIONS] --hold <ID> --why <TEXT> <KEY>", after_help = AFTER_BREAK)]
    Break(BreakArgs),
    /// Examines a store: version, settings, rights, speed, and what it promises. It takes locks of its own
    #[command(after_help = CODES)]
    Doctor(DoctorArgs),
    /// Shows who leads, and who waits to lead
    #[command(after_help = CODES)]
    Leaders(LeadersArgs),
    /// Shows the locked functions of a program, from the JSON of `dlock::explain()`
    Sites {
        /// The file; `-` for standard input
        file: PathBuf,
    },
    /// Writes the completions of a shell to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the man pages into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
}

/// The words of `dlock run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// How long the store keeps the lock without a renewal
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Whether the lock is renewed, and how often: true (after a third of the ttl), false or a duration
    #[arg(long, default_value = "true", value_parser = renew, action = clap::ArgAction::Set)]
    pub(crate) renew: Renew,
    /// How long to wait for the lock: a duration, none or forever
    #[arg(long, default_value = "10s", value_parser = wait)]
    pub(crate) wait: Wait,
    /// exclusive, read, write, or permits(N)
    #[arg(long, default_value = "exclusive", value_parser = mode)]
    pub(crate) mode: Mode,
    /// Waiters get the lock in the order in which they came
    #[arg(long)]
    pub(crate) fair: bool,
    /// At most one start in each period, on all hosts together. Another start ends with the code of a busy lock
    #[arg(long, value_name = "PERIOD", value_parser = duration)]
    pub(crate) once_per: Option<Duration>,
    /// Shifts the periods, which are counted from 1970 in UTC
    #[arg(long, requires = "once_per", value_parser = duration)]
    pub(crate) offset: Option<Duration>,
    /// on-crash: a run whose process has died is started again in its period
    #[arg(long, requires = "once_per")]
    pub(crate) rerun: Option<Rerun>,
    /// The lock stays taken for this time after the start
    #[arg(long, value_parser = duration)]
    pub(crate) min_hold: Option<Duration>,
    /// The lock is lost after this time. Default: never
    #[arg(long, value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// The command is ended after this time
    #[arg(long, value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Whether a lost lock ends the command
    #[arg(long, default_value = "cancel")]
    pub(crate) on_lost: OnLost,
    /// How often a store that fails is asked again: false, a count, or a count and two pauses as in "5, 100ms..2s"
    #[arg(long, value_parser = retry)]
    pub(crate) retry: Option<Retry>,
    /// How often the store is asked at most while the lock is busy
    #[arg(long, value_parser = dlock_values::count)]
    pub(crate) attempts: Option<u32>,
    /// The pause between two polls, as in 100ms..5s, for a store that cannot notify waiters
    #[arg(long, value_parser = backoff)]
    pub(crate) backoff: Option<Backoff>,
    /// The name that others see beside the host. Default: the command's
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The time from the signal TERM to KILL, for a command that must end
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
    /// The exit code for a busy lock, or a run that has begun elsewhere
    #[arg(long, default_value_t = 75)]
    pub(crate) busy_code: u8,
    /// The exit code for a store that does not answer
    #[arg(long, default_value_t = 69)]
    pub(crate) outage_code: u8,
    /// The exit code for a lock that was lost
    #[arg(long, default_value_t = 76)]
    pub(crate) lost_code: u8,
    /// Says nothing when the lock is busy
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Errors and the log of -v show a hash in the place of the key
    #[arg(long)]
    pub(crate) sensitive: bool,
    /// The lock's key: stock:42, or stock:<42> as a service with the template stock:<id> has it
    pub(crate) key: String,
    /// The command and its arguments. It gets DLOCK_KEY, DLOCK_TOKEN, and with permits DLOCK_SLOT
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// When a run of a period is started again.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Rerun {
    OnCrash,
}

/// The fate of the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM, then KILL after the grace
    Cancel,
    /// It goes on without the lock
    Continue,
}

/// The words of `dlock ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Only keys that begin like this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// How many locks are listed at most
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// The words of `dlock show`.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The key, such as stock:42; stock:<42> is found too
    pub(crate) key: String,
}

/// The words of `dlock watch`.
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Only keys that begin like this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// How often the store is looked at
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) every: Duration,
}

/// The words of `dlock console`.
#[derive(Args, Debug)]
pub(crate) struct ConsoleArgs {
    /// The address. Port 0 takes a free one. Everybody who reaches it can read the page, also other users of this host
    #[arg(long, default_value = "127.0.0.1:8765", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Allows an address that other hosts reach. The page asks for no password: put it behind a proxy that asks for one
    #[arg(long, conflicts_with = "allow_break")]
    pub(crate) any_address: bool,
    /// Holds can be broken on the page, in the name of this user and host, by everybody who reaches it
    #[arg(long)]
    pub(crate) allow_break: bool,
    /// Shows the leader and the candidates of this election too
    #[arg(long = "election", value_name = "NAME")]
    pub(crate) elections: Vec<String>,
    /// How often each open page looks at the store
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) every: Duration,
}

/// The words of `dlock wait`.
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// The longest wait: a duration, none or forever
    #[arg(long, default_value = "forever", value_parser = wait)]
    pub(crate) wait: Wait,
    /// The key
    pub(crate) key: String,
}

/// The words of `dlock break`.
#[derive(Args, Debug)]
pub(crate) struct BreakArgs {
    /// The hold's id, as `dlock show` shows it. A hold with another id is not broken
    #[arg(long, value_name = "ID")]
    pub(crate) hold: HoldId,
    /// The reason. The holder reads it in its error
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) why: String,
    /// The name of the operator. Default: the user and the host
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Breaks the hold without a question
    #[arg(long)]
    pub(crate) yes: bool,
    /// The key
    pub(crate) key: String,
}

/// The words of `dlock doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The store's URL; default: that of the other commands
    #[arg(value_name = "URL")]
    pub(crate) address: Option<String>,
    /// How many times a lock is taken and released for the latency
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
}

/// The words of `dlock leaders`.
#[derive(Args, Debug)]
pub(crate) struct LeadersArgs {
    /// The names of the elections; without one, all that have a leader
    pub(crate) names: Vec<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    dlock_values::duration(text).map_err(String::from)
}

fn wait(text: &str) -> Result<Wait, String> {
    // The text is written for the attribute.
    let words = |text: String| {
        ["none", "forever"]
            .iter()
            .fold(text, |text, word| text.replace(&format!("`wait = \"{word}\"`"), &format!("`--wait {word}`")))
    };
    dlock_values::wait(text).map_err(|wrong| words(wrong.into()))
}

fn renew(text: &str) -> Result<Renew, String> {
    dlock_values::renew(text).map_err(|wrong| String::from(wrong).replace("`renew = false`", "`--renew false`"))
}

fn retry(text: &str) -> Result<Retry, String> {
    let dlock_values::Retry { times, pauses } = dlock_values::retry(text)?;
    Ok(Retry { times, backoff: pauses.map(|(from, to)| Backoff::new(from, to)) })
}

fn backoff(text: &str) -> Result<Backoff, String> {
    dlock_values::pauses(text).map(|(from, to)| Backoff::new(from, to))
}

fn mode(text: &str) -> Result<Mode, String> {
    let permits = || {
        let limit = dlock_values::count(text.strip_prefix("permits(")?.strip_suffix(')')?).ok()?;
        Some(Mode::Permits(limit.try_into().ok()?))
    };
    match text {
        "exclusive" => Ok(Mode::Exclusive),
        "read" => Ok(Mode::Read),
        "write" => Ok(Mode::Write),
        _ => permits()
            .ok_or_else(|| "expected `exclusive`, `read`, `write`, or a number of holders as in `permits(3)`".into()),
    }
}

#[cfg(test)]
mod tests;
