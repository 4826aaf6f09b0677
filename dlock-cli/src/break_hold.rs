//! `dlock break`: ends the hold of this id, and no other one.

use std::io::{self, BufRead, IsTerminal, Write};

use dlock::Key;
use serde_json::json;

use crate::cli::{BreakArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::output::{note, print, print_json};
use crate::show::find;
use crate::store::Store;

pub(crate) async fn break_hold(args: &StoreArgs, order: &BreakArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let found = find(&store, &order.key).await?;
    let Some(lock) = found.iter().find(|lock| lock.state.holders.iter().any(|holder| holder.id == Some(order.hold)))
    else {
        note(&format!("no hold {} of {}", order.hold, order.key));
        for holder in found.iter().flat_map(|lock| &lock.state.holders) {
            let id = holder.id.map(|id| id.to_string()).unwrap_or_else(|| "without an id".into());
            note(&format!("it is held by {}: {}", id, holder.note));
        }
        return Ok(Exit::NO);
    };
    let shown = store.shown(lock.key.as_str());
    if !order.yes && !confirmed(shown, lock.state.note().map(|note| note.to_string()).unwrap_or_default())? {
        note("nothing was broken");
        return Ok(Exit::NO);
    }
    let by = order.by.clone().unwrap_or_else(operator);
    let lock = store.registry.lock(Key::from(&lock.key)).backend(&store.backend);
    let broken = lock.break_hold(order.hold).by(by).because(&order.why).await?;
    if json {
        print_json(&json!({ "key": shown, "hold": order.hold.to_string(), "broken": broken }))?;
    } else if broken {
        print(&format!("broken: {shown}. The holder hears of it at its next renewal\n"))?;
    } else {
        note(&format!("the hold {} has ended by itself", order.hold));
    }
    Ok(if broken { Exit::OK } else { Exit::NO })
}

/// Asks on a terminal. Elsewhere nobody can answer.
fn confirmed(key: &str, holder: String) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here: write --yes"));
    }
    let _ = write!(
        io::stderr(),
        "{key} is held by {holder}.\nTwo may work under the lock until the holder hears of it. Break it? [y/N] "
    );
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The user and the host.
pub(crate) fn operator() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let host = ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("{}@{}", user.as_deref().unwrap_or("unknown"), host.as_deref().unwrap_or("dlock-cli"))
}
