//! The first step of a request, which hands it to the client. It is taken at once, so that requests keep their order.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use tokio::task::{Unconstrained, unconstrained};

/// Takes the first step of a request, and leaves the others to a task.
pub(crate) fn first_step<F: Future<Output = ()>, T>(request: F, spawn: impl FnOnce(Pin<Box<Unconstrained<F>>>) -> T) {
    // Unconstrained: a task that has used up its budget would hand over nothing, and the next request would overtake it,
    // such as an abandon its acquire.
    let mut request = Box::pin(unconstrained(request));
    if request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        spawn(request);
    }
}
