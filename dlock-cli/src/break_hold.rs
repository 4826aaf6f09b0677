//! `dlock break`: ends the hold of this id, and no other one.

use std::io::{self, BufRead, IsTerminal, Write};

use dlock::Key;
use serde_json::json;

use crate::cli::{BreakArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::find::find;
use crate::output::{holder, note, print, print_json, quoted, visible};
use crate::store::Store;

pub(crate) async fn break_hold(args: &StoreArgs, order: &BreakArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let found = find(&store, &order.key).await?;
    let held = found.iter().find_map(|lock| {
        let of_id = lock.state.holders.iter().find(|holder| holder.id == Some(order.hold));
        of_id.map(|holder| (lock, holder))
    });
    let Some((lock, of_id)) = held else {
        if json {
            print_json(&json!({ "key": order.key, "hold": order.hold.to_string(), "broken": false }))?;
        }
        note(&format!("no hold {} of {}: it has ended, and nothing was broken", order.hold, order.key));
        if found.is_empty() {
            note("nobody holds the lock now");
        }
        for held in found.iter().flat_map(|lock| &lock.state.holders) {
            let id = held.id.map(|id| format!("--hold {id}")).unwrap_or_else(|| "no hold id".into());
            note(&format!("it is held by {} ({id})", holder(&held.note)));
        }
        return Ok(Exit::NO);
    };
    let shown = store.shown(lock.key.as_str());
    if !order.yes && !confirmed(shown, &holder(&of_id.note))? {
        note("nothing was broken");
        return Ok(Exit::NO);
    }
    let by = order.by.clone().unwrap_or_else(operator);
    let (shown_key, shown) = (shown, visible(shown));
    let whose = holder(&of_id.note);
    let lock = store.registry.lock(Key::from(&lock.key)).backend(&store.backend);
    let broken = lock.break_hold(order.hold).by(&by).because(&order.why);
    let broken = broken.await?;
    if json {
        print_json(&json!({ "key": shown_key, "hold": order.hold.to_string(), "broken": broken }))?;
    } else if broken {
        print(&format!(
            "broken: {shown}, the hold of {whose}, by {}. The holder hears of it at its next renewal, after a third of its ttl at the \
             latest. `dlock show {}` tells who holds it now\n",
            visible(&by),
            quoted(&shown)
        ))?;
    } else {
        note(&format!("the hold {} has ended by itself", order.hold));
    }
    Ok(if broken { Exit::OK } else { Exit::NO })
}

/// Asks on a terminal. Elsewhere nobody can answer.
fn confirmed(key: &str, holder: &str) -> Result<bool, Failure> {
    let risk = format!("{key} is held by {holder}.\nTwo may work under the lock until the holder hears of it.");
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{risk}\nNobody can be asked here, so nothing was broken: write --yes if it shall be"
        )));
    }
    let _ = write!(io::stderr(), "{risk} Break it? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The user and the host.
pub(crate) fn operator() -> String {
    operator_of(|name| std::env::var(name).ok())
}

/// Shells do not export `HOSTNAME`, and cron sets no `USER` everywhere. Then the system is asked.
fn operator_of(variable: impl Fn(&str) -> Option<String>) -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(&variable).unwrap_or_else(system::user);
    let host = ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(&variable).unwrap_or_else(system::host);
    format!("{user}@{host}")
}

#[cfg(unix)]
mod system {
    pub(super) fn user() -> String {
        format!("uid-{}", rustix::process::getuid().as_raw())
    }

    pub(super) fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn user() -> String {
        "unknown".into()
    }

    pub(super) fn host() -> String {
        "dlock-cli".into()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn without_variables_the_system_says_who_and_where() {
        let named = super::operator_of(|name| (name == "LOGNAME" || name == "HOSTNAME").then(|| "x".to_owned()));
        assert_eq!(named, "x@x");
        let asked = super::operator_of(|_| None);
        let (user, host) = asked.split_once('@').unwrap();
        assert!(user.starts_with("uid-") && !host.is_empty(), "{asked}");
        assert_eq!(host, rustix::system::uname().nodename().to_str().unwrap());
    }
}
