//! Whether a hold is held, how it has ended, and whom its loss wakes.

use std::sync::atomic::Ordering;
use std::task::Waker;

use dlock_contract::LossCause;

use crate::hold::listeners::LossListeners;
use crate::sync::{AtomicU8, Mutex, MutexGuard, lock_unless_forked, planted};

/// It ends once, and for one cause.
#[derive(Debug)]
pub(crate) struct HoldState {
    state: AtomicU8,
    waiting_for_loss: Mutex<LossListeners>,
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
const LOST_DEADLINE: u8 = 2;
const LOST_STORE: u8 = 3;
const LOST_MAX_HOLD: u8 = 4;
const LOST_SHUTDOWN: u8 = 5;
const LOST_BROKEN: u8 = 6;

impl HoldState {
    pub(crate) fn held() -> Self {
        Self { state: AtomicU8::new(HELD), waiting_for_loss: Mutex::default() }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// Whether it was released, and not lost.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Ordering::Acquire) == RELEASED
    }

    /// How it has ended; `None` while it is held.
    pub(crate) fn ended(&self) -> Option<LossCause> {
        match self.state.load(Ordering::Acquire) {
            HELD => None,
            state => Some(cause(state)),
        }
    }

    /// Held → released. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        self.change(RELEASED)
    }

    /// Held → lost. False if it had ended before.
    pub(crate) fn mark_lost(&self, cause: LossCause) -> bool {
        let lost = self.change(match cause {
            LossCause::Deadline => LOST_DEADLINE,
            LossCause::Broken => LOST_BROKEN,
            LossCause::MaxHold => LOST_MAX_HOLD,
            LossCause::Shutdown => LOST_SHUTDOWN,
            LossCause::Released | LossCause::Unconfirmed => RELEASED,
            // The store, or a cause that a later contract adds. Both are losses.
            _ => LOST_STORE,
        });
        if lost && !planted("a loss wakes nobody") {
            let listeners = self.listeners().map(|mut listeners| std::mem::take(&mut *listeners));
            listeners.unwrap_or_default().wake();
        }
        lost
    }

    fn change(&self, to: u8) -> bool {
        if planted("a hold ends twice") {
            let was_held = self.is_held();
            self.state.store(to, Ordering::Release);
            return was_held;
        }
        self.state.compare_exchange(HELD, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Registers a task that wants to hear of the loss, and looks then: the loss may have come before.
    pub(crate) fn listen_and_look<T>(
        &self,
        listen: impl FnOnce(&mut LossListeners) -> Option<Waker>,
        look: impl FnOnce() -> T,
    ) -> T {
        if planted("a task looks before it listens") {
            let seen = look();
            self.listeners().and_then(|mut listeners| listen(&mut listeners));
            return seen;
        }
        let old = self.listeners().and_then(|mut listeners| listen(&mut listeners));
        // Drop the old waker outside of the lock: it may be the last reference to a task of another executor.
        drop(old);
        look()
    }

    /// A task listens no more.
    pub(crate) fn forget(&self, listener: u64) {
        let waker = self.listeners().map(|mut listeners| listeners.forget(listener));
        // Outside of the lock, as above.
        drop(waker);
    }

    /// None in a child after `fork`, if the parent had locked them just then.
    fn listeners(&self) -> Option<MutexGuard<'_, LossListeners>> {
        lock_unless_forked(&self.waiting_for_loss)
    }
}

const fn cause(state: u8) -> LossCause {
    match state {
        RELEASED => LossCause::Released,
        LOST_STORE => LossCause::Store,
        LOST_BROKEN => LossCause::Broken,
        LOST_MAX_HOLD => LossCause::MaxHold,
        LOST_SHUTDOWN => LossCause::Shutdown,
        _ => LossCause::Deadline,
    }
}
