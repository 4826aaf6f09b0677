//! The turns that holds keep. The server ends a session with a turn that is silent: it may have granted the turn to a process
//! that stands still, and then every waiter would wait for that process. So sessions with a turn send a sign of life.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use crate::dialect::Dialect;
use crate::lease::queue::sessions::QueueSessions;
use crate::lease::queue::turn::Turn;

/// `None` once the turn was taken or has ended.
type MaybeTurn<D> = Option<Box<Turn<D>>>;

/// The turn of one hold. It is locked while a sign is under way.
pub(crate) type KeptTurn<D> = Arc<tokio::sync::Mutex<MaybeTurn<D>>>;

/// A hold that ends before this sends no sign.
pub(crate) const FIRST_SIGN_AFTER: Duration = Duration::from_millis(500);

/// How often the turns are looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// The kept turns of one runtime.
pub(crate) struct KeptTurns<D: Dialect>(Mutex<KeptTurnsState<D>>);

struct KeptTurnsState<D: Dialect> {
    turns: Vec<Weak<tokio::sync::Mutex<MaybeTurn<D>>>>,
    /// Whether a task looks after them.
    is_watched: bool,
}

impl<D: Dialect> Default for KeptTurns<D> {
    fn default() -> Self {
        Self(Mutex::new(KeptTurnsState { turns: Vec::new(), is_watched: false }))
    }
}

impl<D: Dialect> KeptTurns<D> {
    fn lock(&self) -> MutexGuard<'_, KeptTurnsState<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dialect> QueueSessions<D> {
    /// Sends signs of life for this turn until it ends.
    pub(crate) fn keep(self: &Arc<Self>, turn: &KeptTurn<D>) {
        let mut state = self.kept_turns.lock();
        state.turns.retain(|kept| kept.strong_count() > 0);
        state.turns.push(Arc::downgrade(turn));
        if !std::mem::replace(&mut state.is_watched, true) {
            drop(state);
            self.runtime.spawn(self.clone().send_signs());
        }
    }

    /// Looks after the turns until none is left.
    async fn send_signs(self: Arc<Self>) {
        let clock = &self.context.clock;
        loop {
            clock.sleep_until(clock.now().after(LOOK_PAUSE)).await;
            let turns: Vec<_> = {
                let mut state = self.kept_turns.lock();
                state.turns.retain(|kept| kept.strong_count() > 0);
                state.is_watched = !state.turns.is_empty();
                state.turns.iter().filter_map(Weak::upgrade).collect()
            };
            if turns.is_empty() {
                return;
            }
            for turn in turns {
                // It is locked while its last sign is under way, or its hold ends.
                if let Ok(turn) = turn.try_lock_owned()
                    && turn.as_ref().is_some_and(|turn| turn.sign_at <= clock.now())
                {
                    self.runtime.spawn(send_sign(turn));
                }
            }
        }
    }
}

async fn send_sign<D: Dialect>(mut kept: OwnedMutexGuard<MaybeTurn<D>>) {
    let Some(turn) = kept.as_mut() else { return };
    if turn.session.keep_turn(turn.silence).await.is_err() {
        // The lock is held all the same. Somebody else has the turn now, or soon: this closes the session.
        *kept = None;
        return;
    }
    turn.sign_at = turn.sessions.context.clock.now().after(turn.silence / 3);
}
