//! `on_busy = call(path)`: the output of the other function, which may be async or not.
//!
//! The expansion calls `(&made).how()`. If a future was made, the method is found at the first step of the search,
//! otherwise at the second.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The result of the other function. Boxed, so that the future of the locked function needs no room for it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Made<T>(Box<T>);

impl<T> Made<T> {
    pub fn new(made: T) -> Self {
        Self(Box::new(made))
    }
}

#[doc(hidden)]
pub trait MadeFuture {
    fn how(&self) -> Await {
        Await
    }
}

impl<F: Future> MadeFuture for Made<F> {}

#[doc(hidden)]
pub trait MadeValue {
    fn how(&self) -> Take {
        Take
    }
}

impl<T> MadeValue for &Made<T> {}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Await;

impl Await {
    pub fn output<F: Future>(self, made: Made<F>) -> Pin<Box<F>> {
        Box::into_pin(made.0)
    }
}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Take;

impl Take {
    pub fn output<T>(self, made: Made<T>) -> Taken<T> {
        Taken(Some(made.0))
    }
}

/// A value that is there already.
#[doc(hidden)]
#[derive(Debug)]
pub struct Taken<T>(Option<Box<T>>);

impl<T> Future for Taken<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0.take().map_or(Poll::Pending, |value| Poll::Ready(*value))
    }
}

/// The output of the other function, which must have the type of the locked function's output.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the function in `on_busy = call(…)` must give what the locked one gives, `{Out}`, and not `{Self}`",
    label = "gives something else",
    note = "is it async? Such a function can be called only instead of one that is async too: make the locked function `async`, or call one that is not"
)]
pub trait Instead<Out> {
    fn output(self) -> Out;
}

impl<Out> Instead<Out> for Out {
    fn output(self) -> Out {
        self
    }
}
