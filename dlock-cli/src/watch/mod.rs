//! `dlock watch`: the locks of a store, live on a terminal.

mod model;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use dlock::{Key, ListedLock};
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
    let mut next_look = Instant::now();
    loop {
        draw(terminal, &mut model)?;
        let wish = tokio::select! {
            () = sleep_until(next_look.min(Instant::now() + REDRAW_INTERVAL)) => None,
            key = keys.recv() => match key {
                Some(key) => model.press(key),
                None => Some(Wish::Quit),
            },
        };
        match wish {
            Some(Wish::Quit) => return Ok(()),
            Some(Wish::Break { key, hold }) => {
                let lock = store.registry.lock(Key::from(&key)).backend(&store.backend);
                let broken = lock.break_hold(hold).by(operator()).because("dlock watch").await;
                let told = match broken {
                    Ok(true) => {
                        model.expect_end(hold);
                        format!("broken: {}. The holder hears of it at its next renewal", store.shown(key.as_str()))
                    }
                    Ok(false) => "this hold has ended by itself".into(),
                    Err(error) => error.to_string(),
                };
                model.say(told);
                next_look = Instant::now();
            }
            None => {}
        }
        if Instant::now() >= next_look {
            // A store that is away comes back by itself: the last picture stays, with the error.
            match look(store, watch).await {
                Ok((locks, is_whole)) => model.show(&locks, is_whole, store),
                Err(error) => model.fail(error.to_string()),
            }
            next_look = Instant::now() + watch.every;
        }
    }
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
    let drawn = terminal.draw(|frame| view::draw(frame, model));
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
