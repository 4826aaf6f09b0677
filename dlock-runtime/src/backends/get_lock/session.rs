//! A session that holds a lock.

use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::fault::{fault, is_over};
use super::link::Link;
use crate::backend::{Standing, Validity};
use crate::clock::{BootInstant, Clock};
use crate::error::Result;
use std::time::Duration;

/// A session that holds a lock. Dropping it closes the socket, and the server frees the lock.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) token: u64,
    /// The server's name for the session.
    pub(super) id: u64,
    state: Mutex<State>,
}

enum State {
    Quiet(Link),
    /// A question whose asker has gone: the next one takes its answer, so an impatient asker does not end the session.
    Asking(BoxFuture<'static, Asked>),
    Closed,
}

struct Asked {
    /// The link, unless the session is over.
    link: Option<Link>,
    since: BootInstant,
    answer: sqlx::Result<bool>,
}

impl Session {
    pub(super) fn new(name: String, token: u64, link: Link) -> Self {
        Self { name, token, id: link.id, state: Mutex::new(State::Quiet(link)) }
    }

    /// Asks the server whether the lock is still held.
    pub(super) async fn confirm(&self, ttl: Duration, clock: &Clock) -> Result<Standing> {
        let mut state = self.state.lock().await;
        if let State::Quiet(_) = *state
            && let State::Quiet(link) = std::mem::replace(&mut *state, State::Closed)
        {
            *state = State::Asking(Box::pin(ask(link, self.name.clone(), clock.clone())));
        }
        let State::Asking(asking) = &mut *state else { return Ok(Standing::Lost) };
        let asked = asking.await;
        *state = asked.link.map_or(State::Closed, State::Quiet);
        match asked.answer {
            Ok(true) => Ok(Standing::Renewed(Validity { from: asked.since, granted: ttl })),
            Ok(false) => Ok(Standing::Lost),
            Err(error) if is_over(&error) => Ok(Standing::Lost),
            Err(error) => Err(fault(error)),
        }
    }

    /// Frees the lock. The link comes back if it is clean and was the lock's holder.
    pub(super) async fn free(&self) -> Result<Option<Link>> {
        let mut state = self.state.lock().await;
        let link = match std::mem::replace(&mut *state, State::Closed) {
            State::Quiet(link) => link,
            State::Asking(asking) => match asking.await.link {
                Some(link) => link,
                None => return Ok(None),
            },
            State::Closed => return Ok(None),
        };
        let (link, freed) = link.unlock(&self.name).await?;
        Ok(freed.then_some(link))
    }
}

async fn ask(mut link: Link, name: String, clock: Clock) -> Asked {
    let since = clock.now();
    let answer = link.holds(&name).await;
    let over = answer.as_ref().is_err_and(is_over);
    Asked { link: (!over).then_some(link), since, answer }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Quiet(_) => "Quiet",
            Self::Asking(_) => "Asking",
            Self::Closed => "Closed",
        })
    }
}
