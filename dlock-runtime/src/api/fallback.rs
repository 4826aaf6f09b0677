//! `on_busy = call(path)`: the output of the other function, which may be async or not.
//!
//! The expansion calls `(&call).__dlock_kind()`. If the other function has returned a future, the compiler finds the method of
//! [`FallbackIsFuture`], otherwise that of [`FallbackIsValue`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The return value of the fallback function: a future or a plain value. Boxed, which keeps the future of the locked
/// function small.
#[doc(hidden)]
#[derive(Debug)]
pub struct FallbackCall<T>(Box<T>);

impl<T> FallbackCall<T> {
    pub fn new(call: T) -> Self {
        Self(Box::new(call))
    }
}

#[doc(hidden)]
pub trait FallbackIsFuture {
    fn __dlock_kind(&self) -> Await {
        Await
    }
}

impl<F: Future> FallbackIsFuture for FallbackCall<F> {}

#[doc(hidden)]
pub trait FallbackIsValue {
    fn __dlock_kind(&self) -> UseValue {
        UseValue
    }
}

impl<T> FallbackIsValue for &FallbackCall<T> {}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Await;

impl Await {
    pub fn output<F: Future>(self, call: FallbackCall<F>) -> Pin<Box<F>> {
        Box::into_pin(call.0)
    }
}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct UseValue;

impl UseValue {
    pub fn output<T>(self, call: FallbackCall<T>) -> ReadyValue<T> {
        ReadyValue(Some(call.0))
    }
}

/// A future that is ready at once with a value.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReadyValue<T>(Option<Box<T>>);

impl<T> Future for ReadyValue<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0.take().map_or(Poll::Pending, |value| Poll::Ready(*value))
    }
}

/// Checks that the other function has the output type of the locked function.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the function in `on_busy = call(…)` must return `{Out}`, as the locked function does, but it returns `{Self}`",
    label = "returns another type",
    note = "if it is async: an async function can replace only an async one. Make the locked function `async`, or call a function that is not async"
)]
pub trait SameOutput<Out> {
    fn output(self) -> Out;
}

impl<Out> SameOutput<Out> for Out {
    fn output(self) -> Out {
        self
    }
}
