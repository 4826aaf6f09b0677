//! Lists in keys: the types that `<ids..>` accepts.

/// A list with a key for each value: every type that `for` accepts by reference, and pointers to such a type, for
/// example an `Arc`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no list: two dots, as in `<ids..>`, make a key for each value of one",
    label = "for a single value leave out the two dots, as in `<order.id>`",
    note = "a list is what `for` goes through by reference: a slice, an array, a `Vec`, a set, an `Option`; for a type of your own write `impl<'a> IntoIterator for &'a {Self}`"
)]
pub trait KeyList {
    /// Gives the values, one after another.
    type Values<'a>: Iterator
    where
        Self: 'a;

    /// Goes through the values.
    fn values(&self) -> Self::Values<'_>;
}

#[diagnostic::do_not_recommend]
impl<L: ?Sized> KeyList for L
where
    for<'a> &'a L: IntoIterator,
{
    type Values<'a>
        = <&'a L as IntoIterator>::IntoIter
    where
        Self: 'a;

    fn values(&self) -> Self::Values<'_> {
        self.into_iter()
    }
}

/// For expansions. It is a method, so that Rust finds it through pointers, like `iter`.
#[doc(hidden)]
pub trait EachOf: KeyList {
    /// Goes through the values.
    fn __dlock_each(&self) -> Self::Values<'_> {
        self.values()
    }
}

impl<L: KeyList + ?Sized> EachOf for L {}
