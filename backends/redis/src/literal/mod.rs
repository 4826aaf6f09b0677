//! `keys=literal`: locks under the names that foreign clients write.

pub(crate) mod backend;
pub(crate) mod inspect;
pub(crate) mod store;
pub(crate) mod translate;
