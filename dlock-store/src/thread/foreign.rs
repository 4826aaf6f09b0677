//! Wakers and values of the user's that come to our thread. They never run there.
//!
//! A waker and a `Drop` may block or panic, and every lock of the process depends on our thread. So they run on threads
//! of another runtime of ours, `dlock-foreign`, which is started when it is first needed. Only the wakers of tokio's own
//! tasks run where they are called: they block nothing.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, RawWakerVTable, Wake, Waker};

use dlock_contract::engine::caught;
use dlock_contract::{Origin, Result};
use once_cell::sync::OnceCell;

use crate::thread::background::{Background, is_ours};

/// The thread for code of the user's that would else run on our thread.
///
/// # Errors
/// When the operating system gives no thread, when the thread has died, and in a child after `fork`.
pub fn foreign_thread() -> Result<&'static Background> {
    static FOREIGN: OnceCell<Background> = OnceCell::new();
    let start = || Background::start("dlock-foreign", learn_wakers, || (), std::future::pending());
    FOREIGN.get_or_try_init(start)?.in_process(std::process::id())
}

/// How the wakers look that may run on our thread.
static HARMLESS: OnceLock<Harmless> = OnceLock::new();

struct Harmless {
    /// Of a task, of a runtime that drives a future itself, and of a thread that sleeps for one.
    of_tokio: [&'static RawWakerVTable; 3],
    /// Of wakers that are wrapped already.
    wrapped: &'static RawWakerVTable,
}

impl Harmless {
    /// The waker of a task in a `LocalSet` is tokio's, and wakes the executor that polls the set. Without a runtime that is the
    /// user's. One that has entered a runtime cannot be told from tokio's own.
    fn has(&self, waker: &Waker) -> bool {
        let vtable = waker.vtable();
        std::ptr::eq(self.wrapped, vtable)
            || self.of_tokio.iter().any(|known| std::ptr::eq(*known, vtable)) && Origin::here().is_some()
    }
}

/// Learns how the harmless wakers look, on a runtime that nothing runs on yet.
pub(crate) fn learn_wakers(runtime: &tokio::runtime::Runtime) {
    let seen = || poll_fn(|cx| Poll::Ready(cx.waker().vtable()));
    let wrapped = Waker::from(Arc::new(ForeignWaker(Waker::noop().clone()))).vtable();
    let Ok(task) = runtime.block_on(runtime.spawn(seen())) else { return };
    let of_tokio = [task, runtime.block_on(seen()), runtime.handle().block_on(seen())];
    let _ = HARMLESS.set(Harmless { of_tokio, wrapped });
}

/// Polls with a waker that is safe to call on our thread. Futures that our thread polls have wakers of our own.
pub fn poll_guarded<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
    if is_ours() || HARMLESS.get().is_some_and(|harmless| harmless.has(cx.waker())) {
        return poll(cx);
    }
    let waker = Waker::from(Arc::new(ForeignWaker(cx.waker().clone())));
    poll(&mut Context::from_waker(&waker))
}

pin_project_lite::pin_project! {
    /// A future that is polled with a waker that is safe to call on our thread; made by [`guarded`].
    #[derive(Debug)]
    #[must_use = "a future does nothing until it is awaited"]
    pub struct Guarded<F> {
        #[pin]
        future: F,
    }
}

/// Keeps the waker of this future's caller away from our thread.
pub const fn guarded<F: Future>(future: F) -> Guarded<F> {
    Guarded { future }
}

impl<F: Future> Future for Guarded<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        poll_guarded(cx, |cx| self.project().future.poll(cx))
    }
}

/// A waker of which nothing is known.
struct ForeignWaker(Waker);

impl Wake for ForeignWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if is_ours() {
            let foreign = self.clone();
            elsewhere(move || foreign.0.wake_by_ref());
        } else {
            self.0.wake_by_ref();
        }
    }
}

impl Drop for ForeignWaker {
    /// The last waker of a task may own the task.
    fn drop(&mut self) {
        if is_ours() {
            drop_elsewhere(std::mem::replace(&mut self.0, Waker::noop().clone()));
        }
    }
}

/// Drops a value of the user's, but not on our thread.
///
/// ```
/// // The future of a body: its drop may block for as long as it likes.
/// let body = Box::pin(async { "done" });
/// dlock_store::drop_elsewhere(body);
/// ```
pub fn drop_elsewhere<T: Send + 'static>(value: T) {
    if is_ours() {
        elsewhere(move || drop(value));
    } else {
        drop(value);
    }
}

fn elsewhere(work: impl FnOnce() + Send + 'static) {
    #[cfg(feature = "testing")]
    let work = under_way::counted(work);
    let work = move || {
        caught(work);
    };
    match foreign_thread() {
        Ok(thread) => thread.block(work),
        // The machine has no thread left. It runs here all the same, because a task that is not woken hangs.
        Err(_) => work(),
    }
}

/// Waits for the wakers that our thread has called: a paused clock goes on only when all have been woken.
#[cfg(feature = "testing")]
pub(crate) fn let_it_run() {
    while under_way::any() {
        std::thread::yield_now();
    }
}

#[cfg(feature = "testing")]
mod under_way {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    struct Counted;

    impl Drop for Counted {
        fn drop(&mut self) {
            COUNT.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn counted(work: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
        COUNT.fetch_add(1, Ordering::SeqCst);
        let counted = Counted;
        move || {
            let _counted = counted;
            work();
        }
    }

    pub(super) fn any() -> bool {
        COUNT.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::own_thread::background;

    const HANG: Duration = Duration::from_secs(20);

    /// Tells on which threads it is woken and dropped.
    struct Tells(Sender<(&'static str, bool)>);

    impl Wake for Tells {
        fn wake(self: Arc<Self>) {
            self.0.send(("woken", is_ours())).unwrap();
        }
    }

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(("dropped", is_ours())).unwrap();
        }
    }

    fn seen_by(waker: &Waker) -> Waker {
        poll_guarded(&mut Context::from_waker(waker), |cx| cx.waker().clone())
    }

    #[test]
    fn a_foreign_waker_is_neither_woken_nor_dropped_on_our_thread() {
        let ours = background().unwrap();
        for wakes in [true, false] {
            let (tell, told) = channel();
            let waker = seen_by(&Waker::from(Arc::new(Tells(tell))));
            ours.spawn(async move { if wakes { waker.wake() } else { drop(waker) } });
            let told: Vec<_> = std::iter::from_fn(|| told.recv_timeout(HANG).ok()).collect();
            let expected = [("woken", false), ("dropped", false)];
            assert_eq!(told, if wakes { &expected[..] } else { &expected[1..] });
        }
    }

    /// The usual wakers stay as they are, so they cost nothing.
    #[test]
    fn wakers_of_tokio_are_not_wrapped() {
        use tokio::runtime::Builder;
        background().unwrap();
        let is_kept = || poll_fn(|cx| Poll::Ready(seen_by(cx.waker()).will_wake(cx.waker())));
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let runtime = builder.build().unwrap();
            assert!(runtime.block_on(runtime.spawn(is_kept())).unwrap(), "in a task");
            assert!(runtime.block_on(is_kept()), "in `block_on`");
            assert!(runtime.block_on(tokio::task::LocalSet::new().run_until(is_kept())), "in a `LocalSet`");
        }
        assert!(!futures::executor::block_on(is_kept()));
    }

    #[test]
    fn a_waker_is_wrapped_once() {
        background().unwrap();
        let once = seen_by(Waker::noop());
        assert!(!once.will_wake(Waker::noop()) && seen_by(&once).will_wake(&once));
    }

    #[test]
    fn a_value_is_not_dropped_on_our_thread() {
        let (tell, told) = channel();
        let value = Tells(tell);
        background().unwrap().spawn(async move { drop_elsewhere(value) });
        assert_eq!(told.recv_timeout(HANG).unwrap(), ("dropped", false));
    }
}
