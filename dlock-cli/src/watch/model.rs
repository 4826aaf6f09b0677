//! The state of the `watch` screen, and its changes by keys. It knows no terminal.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use dlock::{HoldId, Holder, ListedLock, LockKey};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use crate::ls::SeenHolder;
use crate::store::Store;

/// The lines that the screen has for lost locks.
const LOSSES_SHOWN: usize = 3;

/// One holder of one lock.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) lock: LockKey,
    pub(super) key: String,
    pub(super) place: String,
    pub(super) function: String,
    pub(super) since_ms: Option<u64>,
    pub(super) lease_left: Option<Duration>,
    /// The longest lease that was seen: the bar is full with it.
    pub(super) full_lease: Duration,
    pub(super) waiters: Option<u64>,
    pub(super) token: Option<u64>,
    pub(super) trace: Option<String>,
    pub(super) names: Vec<String>,
    pub(super) hold: Option<HoldId>,
}

/// The column that orders the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Waiters,
    Age,
    Key,
}

/// The part of the screen that takes the keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Table,
    /// The text of the filter is being written.
    Filter,
    /// All that is known of one lock.
    Details,
    /// "Break it?" The reason is being written.
    Confirm,
}

/// Something for the outside to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Break { key: LockKey, hold: HoldId, why: String },
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) prefix: String,
    pub(super) filter: String,
    /// Why a hold is to be broken. Both sides log it.
    pub(super) why: String,
    /// The hold that is to be broken.
    to_break: Option<(LockKey, HoldId)>,
    pub(super) order: Order,
    pub(super) focus: Focus,
    pub(super) table: TableState,
    /// The result of the last action, or the reason why the store was not reached.
    pub(super) message: Option<String>,
    pub(super) is_stale: bool,
    /// Whether the rows are all locks of the store.
    pub(super) is_whole: bool,
    /// The last holds that ended with their lease or by a break, and not by a release.
    pub(super) losses: VecDeque<String>,
    /// Holds that were broken here, and are still listed.
    broken: Vec<HoldId>,
    /// When the store was looked at: leases have run since.
    pub(super) looked: Instant,
    rows: Vec<Row>,
}

impl Model {
    pub(super) fn new(prefix: String) -> Self {
        Self {
            prefix,
            filter: String::new(),
            why: String::new(),
            to_break: None,
            order: Order::Waiters,
            focus: Focus::Table,
            table: TableState::default(),
            message: None,
            is_stale: false,
            is_whole: true,
            losses: VecDeque::new(),
            broken: Vec::new(),
            looked: Instant::now(),
            rows: Vec::new(),
        }
    }

    /// The store's answer.
    pub(super) fn show(&mut self, locks: &[ListedLock], is_whole: bool, store: &Store) {
        self.is_whole = is_whole;
        let rows = locks.iter().flat_map(|lock| lock.state.holders.iter().map(move |holder| (lock, holder)));
        self.set(rows.map(|(lock, holder)| Row::new(lock, holder, store)).collect());
    }

    fn set(&mut self, rows: Vec<Row>) {
        let selected = self.selected().map(|row| (row.lock.clone(), row.hold));
        let elapsed = self.looked.elapsed();
        self.looked = Instant::now();
        let mut before: HashMap<_, _> = std::mem::replace(&mut self.rows, rows)
            .into_iter()
            .map(|row| ((row.lock.clone(), row.hold), row))
            .collect();
        for row in &mut self.rows {
            if let Some(before) = before.remove(&(row.lock.clone(), row.hold)) {
                row.full_lease = row.full_lease.max(before.full_lease);
            }
        }
        // A list that was cut may lack the others for that alone.
        if self.is_whole {
            // After an answer that failed to come, a renewed hold looks as one whose lease has ended.
            let elapsed = if self.is_stale { Duration::ZERO } else { elapsed };
            before.into_values().for_each(|row| self.note_loss(&row, elapsed));
        }
        if std::mem::take(&mut self.is_stale) {
            self.message = None;
        }
        self.select(selected);
    }

    /// A hold is no longer listed. One whose lease was over by then was not released, if it was not renewed in time before either:
    /// the lease of a renewed one is never much below two thirds of its ttl.
    fn note_loss(&mut self, row: &Row, elapsed: Duration) {
        let is_broken = row.hold.is_some_and(|hold| self.broken.contains(&hold));
        let is_over = row.lease_left.is_some_and(|left| left <= elapsed && left < row.full_lease / 2);
        if is_broken || is_over {
            let cause = if is_broken { "broken here" } else { "its lease ended" };
            self.losses.truncate(LOSSES_SHOWN - 1);
            self.losses.push_front(format!("lost: {} of {}, {cause}", row.key, row.place));
        }
        self.broken.retain(|hold| Some(*hold) != row.hold);
    }

    /// This hold was broken here.
    pub(super) fn expect_end(&mut self, hold: HoldId) {
        self.broken.push(hold);
    }

    /// Notes that the store has not answered. The rows stay as they were.
    pub(super) fn fail(&mut self, why: String) {
        self.is_stale = true;
        self.message = Some(why);
    }

    pub(super) fn say(&mut self, what: String) {
        self.message = Some(what);
    }

    /// The rows that the filter lets through, in their order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let has =
            |row: &&Row| [&row.key, &row.place, &row.function].iter().any(|text| text.to_lowercase().contains(&wanted));
        let mut rows: Vec<_> = self.rows.iter().filter(has).collect();
        rows.sort_by(|one, other| match self.order {
            Order::Waiters => other.waiters.cmp(&one.waiters).then_with(|| one.key.cmp(&other.key)),
            Order::Age => one.since_ms.unwrap_or(u64::MAX).cmp(&other.since_ms.unwrap_or(u64::MAX)),
            Order::Key => one.key.cmp(&other.key),
        });
        rows
    }

    pub(super) fn selected(&self) -> Option<&Row> {
        self.rows().get(self.table.selected()?).copied()
    }

    /// The hold that is to be broken, while it is listed. What is typed never goes to another one.
    pub(super) fn row_to_break(&self) -> Option<&Row> {
        let (lock, hold) = self.to_break.as_ref()?;
        self.rows.iter().find(|row| row.lock == *lock && row.hold == Some(*hold))
    }

    fn ask_to_break(&mut self) {
        self.to_break = self.selected().and_then(|row| Some((row.lock.clone(), row.hold?)));
        if self.to_break.is_some() {
            self.focus = Focus::Confirm;
        }
    }

    /// The same hold stays selected, also if its line has moved.
    fn select(&mut self, selected: Option<(LockKey, Option<HoldId>)>) {
        let rows = self.rows();
        let same = |row: &&Row| Some((&row.lock, row.hold)) == selected.as_ref().map(|(lock, hold)| (lock, *hold));
        let still = rows.iter().position(same);
        let at = still.or_else(|| self.table.selected()).unwrap_or(0);
        let at = (!rows.is_empty()).then(|| at.min(rows.len() - 1));
        // Another hold has its line now.
        if still.is_none() && self.focus == Focus::Details {
            self.focus = Focus::Table;
        }
        self.table.select(at);
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Wish::Quit);
        }
        match self.focus {
            Focus::Table => self.press_in_table(key.code),
            Focus::Filter => {
                match key.code {
                    KeyCode::Char(c) => self.filter.push(c),
                    KeyCode::Backspace => drop(self.filter.pop()),
                    KeyCode::Esc => {
                        self.filter.clear();
                        self.focus = Focus::Table;
                    }
                    KeyCode::Enter => self.focus = Focus::Table,
                    _ => {}
                }
                self.select(None);
                None
            }
            Focus::Details => {
                match key.code {
                    KeyCode::Char('b') => self.ask_to_break(),
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.focus = Focus::Table,
                    _ => {}
                }
                None
            }
            Focus::Confirm => {
                match key.code {
                    KeyCode::Char(c) => self.why.push(c),
                    KeyCode::Backspace => drop(self.why.pop()),
                    KeyCode::Esc => {
                        self.why.clear();
                        self.focus = Focus::Table;
                    }
                    KeyCode::Enter if !self.why.trim().is_empty() && self.row_to_break().is_some() => {
                        self.focus = Focus::Table;
                        let why = std::mem::take(&mut self.why);
                        return self.to_break.take().map(|(key, hold)| Wish::Break { key, hold, why });
                    }
                    _ => {}
                }
                None
            }
        }
    }

    fn press_in_table(&mut self, key: KeyCode) -> Option<Wish> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Wish::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            KeyCode::PageDown => self.table.scroll_down_by(20),
            KeyCode::PageUp => self.table.scroll_up_by(20),
            KeyCode::Home => self.table.select_first(),
            KeyCode::End => self.table.select_last(),
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    Order::Waiters => Order::Age,
                    Order::Age => Order::Key,
                    Order::Key => Order::Waiters,
                };
            }
            KeyCode::Enter if self.selected().is_some() => self.focus = Focus::Details,
            KeyCode::Char('b') => self.ask_to_break(),
            _ => {}
        }
        None
    }
}

impl Row {
    fn new(lock: &ListedLock, holder: &Holder, store: &Store) -> Self {
        let seen = SeenHolder::new(holder);
        Self {
            lock: lock.key.clone(),
            key: store.shown(lock.key.as_str()).to_owned(),
            place: holder.note.place(),
            function: seen.function.unwrap_or_default(),
            since_ms: seen.since_ms,
            lease_left: seen.lease_left_ms.map(Duration::from_millis),
            full_lease: Duration::from_millis(seen.lease_left_ms.unwrap_or_default()),
            waiters: lock.state.waiters,
            token: seen.token,
            trace: seen.trace,
            names: lock.state.names.clone(),
            hold: holder.id,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
