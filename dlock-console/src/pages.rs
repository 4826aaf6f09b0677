//! The pages that are open now. Each has a token for its next request that changes something.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each looks at a store: a forgotten monitor on the wall must not be a hundred of them.
const MOST_PAGES: usize = 32;

/// The token of each page that is open, by the page's number.
#[derive(Default)]
pub(crate) struct Pages(Mutex<Open>);

#[derive(Default)]
struct Open {
    tokens: HashMap<u64, String>,
    opened: u64,
}

impl Pages {
    pub(crate) fn count(&self) -> usize {
        self.open().tokens.len()
    }

    /// Spends the token of an open page, and gives the page's next one. `None` if no open page has this token: a request that
    /// somebody has seen cannot be sent again.
    pub(crate) fn spend(&self, token: &str) -> Option<String> {
        let next = random()?;
        let mut open = self.open();
        let of_page = open.tokens.values_mut().find(|other| *other == token)?;
        of_page.clone_from(&next);
        Some(next)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open page. It ends when the browser's connection does.
pub(crate) struct OpenPage {
    number: u64,
    pages: Arc<Pages>,
}

impl OpenPage {
    /// `None` if too many are open.
    pub(crate) fn open(pages: &Arc<Pages>) -> Option<Self> {
        let token = random()?;
        let mut open = pages.open();
        if open.tokens.len() >= MOST_PAGES {
            return None;
        }
        open.opened += 1;
        let number = open.opened;
        open.tokens.insert(number, token);
        drop(open);
        Some(Self { number, pages: pages.clone() })
    }

    /// For its next request that changes something.
    pub(crate) fn token(&self) -> Option<String> {
        self.pages.open().tokens.get(&self.number).cloned()
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        self.pages.open().tokens.remove(&self.number);
    }
}

/// A number that nobody can guess. `None` if the system has none.
pub(crate) fn random() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)))
}
