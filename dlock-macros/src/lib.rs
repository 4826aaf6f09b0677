//! The attribute of dlock. Use it through the crate `dlock-rs`, which brings the runtime that it calls.
//!
//! Reading order: `args` (what can be written), `template` and `duration` (two small languages in strings), `item` (the
//! function), `model` (everything checked), `expand` (tokens). `fallback` is for functions with mistakes.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod args;
mod call;
mod checks;
mod duration;
mod expand;
mod fallback;
mod item;
mod lazy;
mod model;
mod names;
mod site;
mod table;
mod template;
mod values;

use proc_macro2::TokenStream;

/// Runs an async function only while a distributed lock is held.
///
/// ```
/// use dlock::distributed_lock;
///
/// # enum OrderError { Lock }
/// # impl From<dlock::Error> for OrderError { fn from(_: dlock::Error) -> Self { Self::Lock } }
/// # async fn write_off(_: u64, _: u32) -> Result<(), OrderError> { Ok(()) }
/// #[distributed_lock(key = "stock:<id>", ttl = "30s")]
/// async fn deduct(id: u64, n: u32) -> Result<(), OrderError> {
///     // Nobody else runs this for the same `id`, on any machine.
///     write_off(id, n).await
/// }
/// ```
///
/// The lock is taken when the future is first polled, and given back when the body ends, in whatever way: a value, an
/// early `return`, a `?`, a panic, or the future being dropped. The body never runs without the lock.
///
/// The function must return a `Result` whose error can be made from `dlock::Error`, because taking the lock can fail.
/// Everything else about it is kept: attributes, documentation, visibility, generics, lifetimes, receivers, patterns.
/// The body may borrow, and may hold what is not `Send`; nothing is spawned.
///
/// # Options
///
/// ## `key`
///
/// The name of the lock, required. `<…>` puts in a value:
///
/// - a parameter, `<id>`, or a name that the pattern of a parameter binds;
/// - a field of one, `<order.id>`, `<self.shop.id>`, `<pair.0>`;
/// - a const generic of the function, `<N>`.
///
/// ```
/// # use dlock::{Error, distributed_lock};
/// # struct Order { id: u64, shop: String }
/// # struct Path<T>(T);
/// #[distributed_lock(key = "order:<order.shop>:<order.id>")]
/// async fn ship(order: Order) -> Result<(), Error> {
///     drop(order); // The key is made before the body runs, which may move or change every argument.
///     Ok(())
/// }
///
/// #[distributed_lock(key = "page:<id>")]
/// async fn handler(Path(id): Path<u64>) -> Result<(), Error> {
///     # drop(id);
///     Ok(())
/// }
///
/// #[distributed_lock(key = "nightly-report")] // One lock for the whole function.
/// async fn report() -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// A value must be `KeyPart`: integers, `bool`, `char`, strings, bytes, options and references of them, and your own
/// types. Floats are not, since equal amounts can have different digits. Values are encoded, so that no value can run
/// into the text around it: `<a><b>` differs for `("a", "bc")` and `("ab", "c")`.
///
/// `<<` is a plain `<`. A template has at most 512 bytes and 16 placeholders, and no control characters.
///
/// ## `ttl`
///
/// How long the lock outlives a process that died with it: a number with a unit (`ns`, `us`, `ms`, `s`, `m`, `h`, `d`,
/// `w`), or several. Without it the registry decides.
///
/// ```
/// # use dlock::{Error, distributed_lock};
/// #[distributed_lock(key = "import", ttl = "1m30s")]
/// async fn import() -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// ## `backend`
///
/// The name under which the store was installed, or the path of a `const` that holds it. Without it the registry's
/// default store is used.
///
/// ```
/// # use dlock::{Error, distributed_lock};
/// const STORE: &str = "redis";
///
/// #[distributed_lock(key = "import", backend = "redis")]
/// async fn import() -> Result<(), Error> {
///     Ok(())
/// }
///
/// #[distributed_lock(key = "export", backend = STORE)]
/// async fn export() -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// ## `wait`
///
/// How long to wait while somebody else holds the lock: a duration, `"none"` or `"forever"`. Without it the registry
/// decides.
///
/// ```
/// # use dlock::{Error, distributed_lock};
/// #[distributed_lock(key = "nightly-report", wait = "none")]
/// async fn report() -> Result<(), Error> {
///     Ok(()) // On all machines but one the call has failed instead of waiting for its turn.
/// }
/// ```
///
/// ## `renew`
///
/// Whether the lock is renewed while the body runs: `true` (at each third of the ttl, the default), `false` (the lock
/// ends with its ttl, even if the body does not), or how often.
///
/// ```
/// # use dlock::{Error, distributed_lock};
/// #[distributed_lock(key = "import", ttl = "30s", renew = "5s")]
/// async fn import() -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// # Beside other attributes
///
/// Attributes are worked off from the top down, and each works on what the one above it has made. So **the lower one is
/// the outer layer** when the function runs:
///
/// - Two locks on one function: the lower one is taken first and given back last. Their keys must differ.
/// - `#[instrument]` below the lock: the span covers the wait for the lock; above it: only the body.
/// - `#[tokio::main]` and `#[tokio::test]` leave a function that is not async: they must stand below.
/// - Under `#[async_trait]` the attribute goes on the functions in the impl (or on provided ones in the trait). Keys
///   cannot use names that are bound by a pattern there.
///
/// ```
/// # use dlock::{Error, distributed_lock};
/// #[distributed_lock(key = "item:<item>")] // taken second
/// #[distributed_lock(key = "shop:<shop>")] // taken first
/// async fn move_item(shop: u64, item: u64) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn distributed_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock(&table::LOCK, args.into(), item.into()).into()
}

fn lock(dialect: &args::Dialect, args: TokenStream, item: TokenStream) -> TokenStream {
    match model::LockedFn::new(dialect, args.clone(), item.clone()) {
        Ok(locked) => expand::expand(&locked),
        Err(mistakes) => fallback::report(&mistakes, dialect, args, item),
    }
}
