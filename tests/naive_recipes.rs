//! The recipes that articles give for a lock, on real servers. The conformance suite must catch each of them that is a whole lock;
//! what a single statement does is shown by itself. `docs/recipes.md` says what is wrong with each, and what replaces it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by them")]

#[path = "naive_recipes/advisory_lock.rs"]
mod advisory_lock;
#[path = "naive_recipes/delete_then_insert.rs"]
mod delete_then_insert;
#[path = "naive_recipes/either_or.rs"]
mod either_or;
#[path = "naive_recipes/errors_are_busy.rs"]
mod errors_are_busy;
#[path = "naive_recipes/for_update.rs"]
mod for_update;
#[path = "naive_recipes/get_lock.rs"]
mod get_lock;
#[path = "naive_recipes/missing_row.rs"]
mod missing_row;
#[path = "naive_recipes/naive.rs"]
mod naive;
#[path = "naive_recipes/one_owner.rs"]
mod one_owner;
#[path = "naive_recipes/partitioned.rs"]
mod partitioned;
#[path = "naive_recipes/release_null.rs"]
mod release_null;
#[path = "naive_recipes/renewal_by_set.rs"]
mod renewal_by_set;
#[path = "naive_recipes/setnx_then_expire.rs"]
mod setnx_then_expire;
#[path = "naive_recipes/timeout_as_deadlock.rs"]
mod timeout_as_deadlock;
#[path = "naive_recipes/unlock_in_finally.rs"]
mod unlock_in_finally;
#[path = "naive_recipes/version_as_lock.rs"]
mod version_as_lock;
#[path = "naive_recipes/wait_ten.rs"]
mod wait_ten;

const SECOND_OWNER: &str = "a second owner is refused, from any client";
const LATE_RELEASE: &str = "a late release returns NotOwner and leaves the next holder alone";
const TOGETHER: &str = "many owners at once never hold the lock together";
