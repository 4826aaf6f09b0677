//! The pages that are open now. Each has a token, which ends with it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each looks at a store: a forgotten monitor on the wall must not be a hundred of them.
const MOST_PAGES: usize = 32;

/// The tokens of the pages that are open.
#[derive(Default)]
pub(crate) struct Pages(Mutex<HashSet<String>>);

impl Pages {
    pub(crate) fn count(&self) -> usize {
        self.tokens().len()
    }

    /// Whether an open page has this token.
    pub(crate) fn know(&self, token: &str) -> bool {
        self.tokens().contains(token)
    }

    fn tokens(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open page. It ends when the browser's connection does.
pub(crate) struct OpenPage {
    pub(crate) token: String,
    pages: Arc<Pages>,
}

impl OpenPage {
    /// `None` if too many are open.
    pub(crate) fn open(pages: &Arc<Pages>) -> Option<Self> {
        let token = random()?;
        let mut tokens = pages.tokens();
        if tokens.len() >= MOST_PAGES {
            return None;
        }
        tokens.insert(token.clone());
        drop(tokens);
        Some(Self { token, pages: pages.clone() })
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        self.pages.tokens().remove(&self.token);
    }
}

/// A number that nobody can guess. `None` if the system has none.
pub(crate) fn random() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)))
}
