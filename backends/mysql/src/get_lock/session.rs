//! A session that holds a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, Clock, HoldId, Result};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, Notify, watch};

use super::link::Link;
use crate::server::fault::{fault, is_over};

/// A session that holds a lock. Dropping it closes the socket, and the server frees the lock.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: Arc<str>,
    pub(super) hold: HoldId,
    pub(super) token: u64,
    /// The server's name for the session.
    pub(super) id: u64,
    ending: watch::Sender<Ending>,
    /// The holder has asked for the record of the break, so it knows that the lock is lost.
    told: Notify,
    since: BootInstant,
    /// When the last request left that the session itself has answered.
    heard: AtomicU64,
    /// When the monitor looked last.
    looked: AtomicU64,
    state: Mutex<State>,
}

/// Whether the lock is surely not this session's any more.
#[derive(Debug)]
enum Ending {
    Lives,
    Ended,
    /// An operator broke the hold.
    Broken(BreakRecord),
}

enum State {
    Quiet(Link),
    /// A question whose asker has gone: the next one takes its answer, so an impatient asker does not end the session.
    Asking(BoxFuture<'static, Reply>),
    Closed,
}

struct Reply {
    /// The link, unless the session is over.
    link: Option<Link>,
    since: BootInstant,
    answer: sqlx::Result<bool>,
}

/// How long a broken hold waits until its holder has heard of it. The holds that are looked at next wait too.
const HEARD: Duration = Duration::from_millis(50);

impl dlock_contract::Session for Session {
    /// Only the monitor tells an end, and it is certain of it.
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let mut ending = self.ending.subscribe();
        Some(Box::pin(async move {
            // An error: the session has gone with its hold.
            let _ = ending.wait_for(|ending| !matches!(ending, Ending::Lives)).await;
        }))
    }
}

impl Session {
    /// Since before the server was asked for something that it has answered with the lock held.
    pub(super) fn new(name: &str, hold: HoldId, token: u64, link: Link, since: BootInstant) -> Self {
        let heard = || AtomicU64::new(since.as_nanos());
        Self {
            name: name.into(),
            hold,
            token,
            id: link.id,
            ending: watch::Sender::new(Ending::Lives),
            told: Notify::new(),
            since,
            heard: heard(),
            looked: heard(),
            state: Mutex::new(State::Quiet(link)),
        }
    }

    pub(super) fn since(&self) -> BootInstant {
        self.since
    }

    pub(super) fn heard(&self) -> BootInstant {
        BootInstant::from_nanos(self.heard.load(Ordering::Acquire))
    }

    pub(super) fn looked(&self) -> BootInstant {
        BootInstant::from_nanos(self.looked.load(Ordering::Acquire))
    }

    pub(super) fn set_looked(&self, now: BootInstant) {
        self.looked.store(now.as_nanos(), Ordering::Release);
    }

    /// The lock is surely not this session's any more.
    pub(super) fn end(&self) {
        self.end_by(Ending::Ended);
    }

    /// The first end stays.
    fn end_by(&self, ending: Ending) {
        self.ending.send_if_modified(|known| {
            let lives = matches!(known, Ending::Lives);
            if lives {
                *known = ending;
            }
            lives
        });
    }

    /// Whether an operator broke the hold, if the session has surely ended.
    pub(super) fn ending(&self) -> Option<Option<BreakRecord>> {
        let known = match &*self.ending.borrow() {
            Ending::Lives => return None,
            Ending::Ended => None,
            Ending::Broken(record) => Some(record.clone()),
        };
        self.told.notify_one();
        Some(known)
    }

    /// Gives the lock up, because an operator broke the hold. The holder is told first, and then the server: until both have
    /// heard of it, nobody else comes in.
    pub(super) async fn break_off(&self, record: BreakRecord, clock: &Clock) {
        self.end_by(Ending::Broken(record));
        let _ = clock.timeout_at(clock.now().after(HEARD), self.told.notified()).await;
        // The holder's task has the answer now, and comes first.
        tokio::task::yield_now().await;
        // The socket closes, and the server frees the lock. Asking it to do so would add a reply that may not come.
        *self.state.lock().await = State::Closed;
    }

    pub(super) fn has_ended(&self) -> bool {
        !matches!(*self.ending.borrow(), Ending::Lives)
    }

    /// Asks the server whether the lock is still held: from before the request on, or not any more.
    pub(super) async fn confirm(&self, clock: &Clock) -> Result<Option<BootInstant>> {
        if self.has_ended() {
            // Not behind a question that is under way, whose answer may be long in coming: the end is certain.
            if let Ok(mut state) = self.state.try_lock() {
                *state = State::Closed;
            }
            return Ok(None);
        }
        let mut state = self.state.lock().await;
        if let State::Quiet(_) = *state
            && let State::Quiet(link) = std::mem::replace(&mut *state, State::Closed)
        {
            *state = State::Asking(Box::pin(ask(link, self.name.clone(), clock.clone())));
        }
        let State::Asking(asking) = &mut *state else { return Ok(None) };
        let reply = asking.await;
        // An end that was found meanwhile stands, and the link of a broken hold must close.
        let ended = self.has_ended();
        *state = reply.link.filter(|_| !ended).map_or(State::Closed, State::Quiet);
        match reply.answer {
            _ if ended => Ok(None),
            Ok(true) => {
                self.heard.fetch_max(reply.since.as_nanos(), Ordering::AcqRel);
                Ok(Some(reply.since))
            }
            Ok(false) => Ok(None),
            Err(error) if is_over(&error) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }

    /// Frees the lock. The link comes back if it is clean and was the lock's holder.
    pub(super) async fn free(&self) -> Result<Option<Link>> {
        let mut state = self.state.lock().await;
        let link = match std::mem::replace(&mut *state, State::Closed) {
            _ if self.has_ended() => return Ok(None),
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

async fn ask(mut link: Link, name: Arc<str>, clock: Clock) -> Reply {
    let since = clock.now();
    let answer = link.holds(&name).await;
    let over = answer.as_ref().is_err_and(is_over);
    Reply { link: (!over).then_some(link), since, answer }
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
