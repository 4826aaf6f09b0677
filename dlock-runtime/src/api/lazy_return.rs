//! For expansions: refuses functions that return work which has not run yet, if the name of the type does not show it.
//! The lock would be gone before such work runs.
//!
//! The expansion calls `(&returned).kind()`. If the result contains a future, the compiler finds the method of
//! [`ReturnsWork`], otherwise that of [`ReturnsValue`]. A type parameter passes, because nothing is known about it.

use std::future::Future;

use crate::api::outcome::{Outcome, Ran};

/// A type that is a future, or has one in it. The parameter says how deep, and keeps the implementations apart.
#[doc(hidden)]
pub trait Lazy<Depth> {}

#[doc(hidden)]
#[derive(Debug)]
pub struct Itself;

#[doc(hidden)]
#[derive(Debug)]
pub struct Within<Depth>(std::marker::PhantomData<Depth>);

impl<F: Future> Lazy<Itself> for F {}
impl<T: Lazy<D>, D> Lazy<Within<D>> for Option<T> {}
impl<T: Lazy<D>, E, D> Lazy<Within<D>> for Result<T, E> {}
impl<T: Lazy<D>, D> Lazy<Within<D>> for Outcome<T> {}
impl<T: Lazy<Within<D>>, D> Lazy<Within<Within<D>>> for Ran<T> {}

/// The value that a function has returned; only its type is looked at.
#[doc(hidden)]
#[derive(Debug)]
pub struct Returned<T>(std::marker::PhantomData<T>);

impl<T> Returned<T> {
    pub const fn of(_: &T) -> Self {
        Self(std::marker::PhantomData)
    }
}

#[doc(hidden)]
pub trait ReturnsWork<Depth> {
    fn kind(&self) -> IsWork {
        IsWork
    }
}

// A future that is returned directly cannot carry the lock's error. Another compile error already says so.
impl<T: Lazy<Within<D>>, D> ReturnsWork<D> for Returned<T> {}

#[doc(hidden)]
pub trait ReturnsValue {
    fn kind(&self) -> IsValue {
        IsValue
    }
}

impl<T> ReturnsValue for &Returned<T> {}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct IsWork;

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct IsValue;

#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this function returns work that has not run: its lock, or its attempts, would be over before that runs",
    label = "there is a future in here",
    note = "make it an `async fn` that awaits the work, and return what that gives",
    note = "a handle of work that shall go on without the lock, such as a `JoinHandle`, can be returned in a type of your own"
)]
pub trait HasRun {}

#[diagnostic::do_not_recommend]
impl HasRun for IsValue {}

/// Compiles for values only.
#[doc(hidden)]
pub const fn has_run<H: HasRun + Copy>(_: H) {}
