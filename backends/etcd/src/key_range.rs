//! A range of keys, and how requests name it.

use etcd_client::{Compare, CompareOp, GetOptions, TxnOp};

/// The keys from `from` up to `to`, which is not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with this text.
    pub(super) fn of(beginning: String) -> Self {
        let from = beginning.into_bytes();
        let mut to = from.clone();
        // The first key after all that begin with `from`. The last byte is ASCII.
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        Self { from, to }
    }

    pub(super) fn options(&self) -> GetOptions {
        GetOptions::new().with_range(self.to.clone())
    }

    pub(super) fn get(&self, options: impl FnOnce(GetOptions) -> GetOptions) -> TxnOp {
        TxnOp::get(self.from.clone(), Some(options(self.options())))
    }

    /// Compares that no key is in the range.
    pub(super) fn is_empty(&self) -> Compare {
        Compare::create_revision(self.from.clone(), CompareOp::Equal, 0).with_range(self.to.clone())
    }
}
