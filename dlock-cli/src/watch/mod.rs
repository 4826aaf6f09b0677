//! `dlock watch`: the locks of a store, live on a terminal.

mod model;
mod view;

use std::future::{IntoFuture, pending};
use std::io::{self, IsTerminal};
use std::time::Duration;

use dlock::{HoldId, Key, ListedLock, LockKey};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::break_hold::operator;
use crate::cli::{StoreArgs, WatchArgs};
use crate::exit::{Exit, Failure};
use crate::store::Store;
use model::{Model, Wish};

/// The most locks that are read and kept.
const MOST_LOCKS: usize = 10_000;

/// The lease bars move between two looks at the store.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) async fn watch(args: &StoreArgs, watch: &WatchArgs) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::usage("`watch` needs a terminal; `dlock ls` prints the locks once"));
    }
    let store = Store::open(args).await?;
    let mut keys = read_keys();
    let mut terminal = ratatui::init();
    let ended = follow(&store, watch, &mut terminal, &mut keys).await;
    ratatui::restore();
    ended.map(|()| Exit::OK)
}

async fn follow(
    store: &Store,
    watch: &WatchArgs,
    terminal: &mut ratatui::DefaultTerminal,
    keys: &mut mpsc::Receiver<KeyEvent>,
) -> Result<(), Failure> {
    let mut model = Model::new(watch.prefix.clone());
    let (mut next_look, mut looked) = (Instant::now(), Instant::now());
    // The request that is under way. The keys work while a silent store is asked.
    let mut asked: Option<LocalBoxFuture<'_, Answer>> = None;
    let mut is_breaking = false;
    loop {
        draw(terminal, &mut model)?;
        if asked.is_none() && Instant::now() >= next_look {
            looked = Instant::now();
            asked = Some(look(store, watch).map(Answer::Locks).boxed_local());
        }
        let answered = async {
            match &mut asked {
                Some(asked) => asked.await,
                None => pending().await,
            }
        };
        let wish = tokio::select! {
            key = keys.recv() => key.map_or(Some(Wish::Quit), |key| model.press(key)),
            answer = answered => {
                (asked, is_breaking) = (None, false);
                next_look = Instant::now();
                match answer {
                    Answer::Locks(locks) => {
                        // A store that is slow is left alone for as long as it has worked.
                        next_look += watch.every.max(looked.elapsed());
                        match locks {
                            Ok((locks, is_whole)) => model.show(&locks, is_whole, store),
                            // A store that is away comes back by itself: the last picture stays, with the error.
                            Err(error) => model.fail(error.to_string()),
                        }
                    }
                    Answer::Broken(hold, Ok(true), key) => {
                        model.expect_end(hold);
                        model.say(format!("broken: {}. The holder hears of it at its next renewal", store.shown(key.as_str())));
                    }
                    Answer::Broken(_, Ok(false), _) => model.say("this hold has ended by itself".into()),
                    Answer::Broken(_, Err(error), _) => model.say(error.to_string()),
                }
                None
            }
            () = sleep_until(Instant::now() + REDRAW_INTERVAL) => None,
        };
        match wish {
            Some(Wish::Quit) => return Ok(()),
            Some(Wish::Break { .. }) if is_breaking => {
                model.say("the store has not answered the last break yet".into())
            }
            Some(Wish::Break { key, hold, why }) => {
                let lock = store.registry.lock(Key::from(&key)).backend(&store.backend);
                let breaking = lock.break_hold(hold).by(operator()).because(why).into_future();
                is_breaking = true;
                asked = Some(breaking.map(move |broken| Answer::Broken(hold, broken, key)).boxed_local());
            }
            None => {}
        }
    }
}

/// The answer of the store to the request that was under way.
enum Answer {
    Locks(Result<(Vec<ListedLock>, bool), dlock::Error>),
    Broken(HoldId, Result<bool, dlock::Error>, LockKey),
}

/// The locks, and whether these are all.
async fn look(store: &Store, watch: &WatchArgs) -> Result<(Vec<ListedLock>, bool), dlock::Error> {
    let mut pages = store.registry.locks().backend(&store.backend).prefix(&watch.prefix).limit(1000);
    let mut locks = Vec::new();
    loop {
        let page = pages.clone().page().await?;
        locks.extend(page.locks);
        match page.next {
            Some(next) if locks.len() < MOST_LOCKS => pages = pages.after(next),
            next => return Ok((locks, next.is_none())),
        }
    }
}

fn draw(terminal: &mut ratatui::DefaultTerminal, model: &mut Model) -> Result<(), Failure> {
    // Without this, crossterm writes a reset in the place of each colour, and the selected row loses its mark.
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let drawn = terminal.draw(|frame| {
        view::draw(frame, model);
        if !has_colours {
            view::without_colours(frame.buffer_mut());
        }
    });
    drawn.map(drop).map_err(|error| Failure::new(Exit::INTERNAL, format!("the terminal: {error}")))
}

/// Keys are read on a thread of their own, since reading blocks. It ends with the program.
fn read_keys() -> mpsc::Receiver<KeyEvent> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if let Event::Key(key) = event
                && key.kind == KeyEventKind::Press
                && sender.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    keys
}
