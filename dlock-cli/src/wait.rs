//! `dlock wait`: until nobody holds a lock. It takes no lock, so it keeps nobody out.

use std::time::{Duration, Instant};

use dlock::{Key, Wait};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::cli::{StoreArgs, WaitArgs};
use crate::exit::{Exit, Failure};
use crate::find::find;
use crate::output::{holder, note, print_json};
use crate::store::Store;

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn wait(args: &StoreArgs, wait: &WaitArgs, json: bool) -> Result<Exit, Failure> {
    let store = Store::open(args).await?;
    let end = match wait.wait {
        Wait::None => Some(Instant::now()),
        Wait::UpTo(limit) => Instant::now().checked_add(limit),
        Wait::Forever => None,
    };
    let spinner = spinner(&format!("waiting for the end of {}", wait.key));
    let found = find(&store, &wait.key).await?;
    let mut keys: Vec<_> = found.into_iter().map(|lock| lock.key).collect();
    let mut has_told = false;
    while let Some(key) = keys.last() {
        let lock = store.registry.lock(Key::from(key)).backend(&store.backend);
        let answer = lock.holders().await;
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let pause = left.map_or(LONGEST_PAUSE, |left| left.min(LONGEST_PAUSE));
        let state = match answer {
            Err(error) if error.is_retryable() && !pause.is_zero() => {
                if !has_told {
                    note(&format!("{error}; the wait goes on"));
                }
                has_told = true;
                tokio::time::sleep(pause).await;
                continue;
            }
            state => state?,
        };
        has_told = false;
        if state.holders.is_empty() {
            keys.pop();
            continue;
        }
        if pause.is_zero() {
            spinner.finish_and_clear();
            let holder = state.note().map(holder).unwrap_or_default();
            let shown = store.shown(key.as_str());
            if json {
                print_json(&json!({ "key": shown, "free": false, "holder": holder }))?;
            } else {
                note(&format!("{shown} is still held by {holder}"));
            }
            return Ok(Exit::BUSY);
        }
        tokio::time::sleep(pause).await;
    }
    spinner.finish_and_clear();
    if json {
        print_json(&json!({ "key": store.shown(&wait.key), "free": true }))?;
    }
    Ok(Exit::OK)
}

/// On a terminal, the time that has passed; elsewhere nothing.
pub(crate) fn spinner(text: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        spinner.set_style(style);
    }
    spinner.set_message(text.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}
