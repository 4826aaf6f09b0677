//! For expansions: refuses functions that return work which has not run yet, if the name of the type does not show it.
//! The lock would be gone before such work runs.
//!
//! Such work is a future, or a type that becomes one, and a stream: also inside of options, results, tuples, lists and
//! boxes. An iterator is none: most types that are iterators, such as ranges, have no work in them.
//!
//! The expansion calls `(&returned).__dlock_kind()`. If the result contains such work, the compiler finds the method of
//! [`ReturnsWork`], otherwise that of [`ReturnsValue`]. A type parameter passes, because nothing is known about it.

use std::future::IntoFuture;

use futures::Stream;

use crate::api::outcome::{Outcome, Ran};

/// A type that is work which has not run, or has such work in it. The parameter says how deep, and keeps the implementations apart.
#[doc(hidden)]
pub trait Lazy<Depth> {}

#[doc(hidden)]
#[derive(Debug)]
pub struct Itself;

#[doc(hidden)]
#[derive(Debug)]
pub struct Within<Depth>(std::marker::PhantomData<Depth>);

/// The work is a stream.
#[doc(hidden)]
#[derive(Debug)]
pub struct ItselfStream;

/// The work is at this place of a tuple.
#[doc(hidden)]
#[derive(Debug)]
pub struct At<const PLACE: usize, Depth>(std::marker::PhantomData<Depth>);

impl<F: IntoFuture> Lazy<Itself> for F {}
impl<S: Stream> Lazy<ItselfStream> for S {}
impl<T: Lazy<D>, D> Lazy<Within<D>> for Option<T> {}
impl<T: Lazy<D>, E, D> Lazy<Within<D>> for Result<T, E> {}
impl<T: Lazy<D>, D> Lazy<Within<D>> for Outcome<T> {}
impl<T: Lazy<D>, D> Lazy<Within<D>> for Vec<T> {}
impl<T: Lazy<D>, D, const N: usize> Lazy<Within<D>> for [T; N] {}
impl<A: Lazy<D>, B, D> Lazy<At<0, D>> for (A, B) {}
impl<A, B: Lazy<D>, D> Lazy<At<1, D>> for (A, B) {}
impl<A: Lazy<D>, B, C, D> Lazy<At<0, D>> for (A, B, C) {}
impl<A, B: Lazy<D>, C, D> Lazy<At<1, D>> for (A, B, C) {}
impl<A, B, C: Lazy<D>, D> Lazy<At<2, D>> for (A, B, C) {}
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
    fn __dlock_kind(&self) -> IsWork {
        IsWork
    }
}

// A future that is returned directly cannot carry the lock's error. Another compile error already says so.
impl<T: Lazy<Within<D>>, D> ReturnsWork<D> for Returned<T> {}

#[doc(hidden)]
pub trait ReturnsValue {
    fn __dlock_kind(&self) -> IsValue {
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
    label = "there is a future or a stream in here",
    note = "make it an `async fn` that awaits the work, and return what that gives, such as a `Vec` of a stream's items",
    note = "a handle of work that shall go on without the lock, such as a `JoinHandle`, can be returned in a type of your own"
)]
pub trait HasRun {}

#[diagnostic::do_not_recommend]
impl HasRun for IsValue {}

/// Compiles for values only.
#[doc(hidden)]
pub const fn has_run<H: HasRun + Copy>(_: H) {}
