//! Checks of the file system, on a thread of their own. A disk that hangs then stops neither our thread, which renews
//! the locks of all stores, nor a thread of the callers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Error, Result};
use dlock_store::aside;
use tokio::sync::oneshot;

/// One check at a time: a disk that hangs keeps one thread, however many callers wait for it.
pub(super) struct Looks<T> {
    look: Arc<dyn Fn() -> Result<T> + Send + Sync>,
    waiters: Arc<Mutex<Waiters<T>>>,
}

struct Waiters<T> {
    waiting: VecDeque<oneshot::Sender<Result<T>>>,
    /// Whether a thread runs a check now.
    looking: bool,
}

impl<T: Send + 'static> Looks<T> {
    pub(super) fn new(look: impl Fn() -> Result<T> + Send + Sync + 'static) -> Self {
        let waiters = Waiters { waiting: VecDeque::new(), looking: false };
        Self { look: Arc::new(look), waiters: Arc::new(Mutex::new(waiters)) }
    }

    /// Runs checks. The thread ends when nobody waits for it any more.
    pub(super) async fn look(&self) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let must_start = {
            let mut waiters = lock(&self.waiters);
            // Remove callers that have given up behind a disk that hangs.
            waiters.waiting.retain(|waiting| !waiting.is_closed());
            waiters.waiting.push_back(sender);
            !std::mem::replace(&mut waiters.looking, true)
        };
        if must_start {
            let (look, waiters) = (self.look.clone(), self.waiters.clone());
            if let Err(error) = aside("dlock-sqlite-look", move || serve(&*look, &waiters)) {
                lock(&self.waiters).looking = false;
                return Err(error);
            }
        }
        receiver.await.unwrap_or_else(|_| Err(Error::outage("the check of the lock file was interrupted")))
    }
}

fn serve<T>(look: &dyn Fn() -> Result<T>, waiters: &Mutex<Waiters<T>>) {
    loop {
        let next = {
            let mut waiters = lock(waiters);
            let next = waiters.waiting.pop_front();
            waiters.looking = next.is_some();
            next
        };
        let Some(next) = next else { return };
        if !next.is_closed() {
            // The caller may have given up meanwhile.
            let _ = next.send(look());
        }
    }
}

fn lock<T>(waiters: &Mutex<Waiters<T>>) -> MutexGuard<'_, Waiters<T>> {
    waiters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> fmt::Debug for Looks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_check_that_hangs_keeps_one_thread_and_blocks_no_other_check() {
        let (began, (release, released)) = (Arc::new(AtomicUsize::new(0)), std::sync::mpsc::channel::<()>());
        let (hangs, released) = (began.clone(), Mutex::new(released));
        let hangs = move || {
            hangs.fetch_add(1, Ordering::SeqCst);
            // Until the other end is dropped.
            let _ = released.lock().unwrap().recv();
            Ok(std::thread::current().id())
        };
        let looks = Looks::new(hangs);
        while began.load(Ordering::SeqCst) == 0 {
            tokio::time::timeout(Duration::from_millis(5), looks.look()).await.unwrap_err();
        }
        for _ in 0..20 {
            // If the check ran on this thread, this would hang.
            tokio::time::timeout(Duration::from_millis(5), looks.look()).await.unwrap_err();
        }
        assert_eq!(began.load(Ordering::SeqCst), 1);
        assert!(lock(&looks.waiters).waiting.len() <= 1, "those who gave up are not kept");
        drop(release);
        assert_ne!(looks.look().await.unwrap(), std::thread::current().id());
        assert_eq!(began.load(Ordering::SeqCst), 2, "nobody looks for those who gave up");
    }
}
