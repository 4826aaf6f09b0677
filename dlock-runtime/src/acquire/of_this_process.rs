//! An acquisition that is under way belongs to the process in which it began.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dlock_contract::Result;
use dlock_store::is_forked;
use futures::future::BoxFuture;

/// A call that asks for locks. In a child after `fork` it is a copy, and dropping that does nothing: the parts of the call may
/// wait for a mutex that a thread of the parent had locked, and nobody unlocks the copy of a mutex.
pub(crate) struct Acquiring<T>(Option<BoxFuture<'static, Result<T>>>);

impl<T> Acquiring<T> {
    pub(crate) fn new(call: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(Some(Box::pin(call)))
    }
}

impl<T> Future for Acquiring<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(call) = &mut self.0 else { return Poll::Pending };
        let outcome = ready!(call.as_mut().poll(cx));
        // At its end there is nothing to look after, so the next drop need not ask the kernel which process this is.
        self.0 = None;
        Poll::Ready(outcome)
    }
}

impl<T> Drop for Acquiring<T> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take_if(|_| is_forked()) {
            std::mem::forget(call);
        }
    }
}
