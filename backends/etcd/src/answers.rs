//! The answer to one transaction, whether it went alone or with others.

use std::sync::atomic::{AtomicI64, Ordering};

use dlock_contract::ErrorKind;
use etcd_client::{GetResponse, KeyValue, ResponseHeader, TxnOpResponse, TxnResponse};

use super::fault::Fault;

/// The answer to a transaction, and the answers to its reads in their order.
pub(super) struct TxnAnswers {
    /// Whether the comparisons held.
    pub(super) succeeded: bool,
    /// The revision of the store after the transaction.
    pub(super) revision: i64,
    answers: std::vec::IntoIter<TxnOpResponse>,
}

impl TxnAnswers {
    /// The answer to a transaction that left by itself.
    ///
    /// Tokens are revisions, so one wrong byte must not become a token. The server tells the revision several times: of the
    /// whole transaction, and after each of its parts.
    ///
    /// `seen`: the highest revision so far. One that is too high would refuse all later grants, and an answer that has lost its
    /// parts on the way tells its revision only once.
    pub(super) fn checked(answer: &TxnResponse, seen: &AtomicI64) -> Result<Self, Fault> {
        let revision = answer.header().map_or(0, ResponseHeader::revision);
        let answers = Self::of(answer, revision);
        match highest_revision(answers.answers.as_slice()) {
            Some(highest) if highest != revision => {
                return Err(Fault::Broken("the answer to a transaction contradicts itself".into()));
            }
            Some(_) => {
                seen.fetch_max(revision, Ordering::AcqRel);
            }
            None => {}
        }
        Ok(answers)
    }

    /// The answer to a transaction that the store executed at this revision.
    fn of(answer: &TxnResponse, revision: i64) -> Self {
        Self { succeeded: answer.succeeded(), revision, answers: answer.op_responses().into_iter() }
    }

    #[cfg(test)]
    pub(super) fn without_reads(succeeded: bool) -> Self {
        Self { succeeded, revision: 1, answers: Vec::new().into_iter() }
    }

    /// The answer to the next read.
    pub(super) fn next_get(&mut self) -> Result<GetResponse, Fault> {
        // Answers to puts and deletes are passed over: they show nothing that is needed.
        let found = self.answers.find_map(|part| if let TxnOpResponse::Get(found) = part { Some(found) } else { None });
        found.ok_or_else(|| Self::incomplete("reads"))
    }

    /// The answer to the next transaction inside of this one.
    pub(super) fn next_txn(&mut self) -> Result<Self, Fault> {
        let found = self.answers.find_map(|part| if let TxnOpResponse::Txn(found) = part { Some(found) } else { None });
        // The server returns the revision only of the outer transaction. All of it is executed at this revision.
        let revision = self.revision;
        found.map(|answer| Self::of(&answer, revision)).ok_or_else(|| Self::incomplete("inner transactions"))
    }

    /// The first key in the answer to the next read.
    pub(super) fn first_key(&mut self) -> Result<Option<KeyValue>, Fault> {
        Ok(self.next_get()?.take_kvs().into_iter().next())
    }

    fn incomplete(what: &str) -> Fault {
        let text = format!("the answer to a transaction misses the answer to one of its {what}");
        Fault::Refused(ErrorKind::Protocol, text)
    }
}

/// The highest revision of these parts of a transaction; `None` if none is told.
fn highest_revision(parts: &[TxnOpResponse]) -> Option<i64> {
    let revisions = parts.iter().filter_map(|part| {
        let header = match part {
            TxnOpResponse::Put(done) => done.header(),
            TxnOpResponse::Get(done) => done.header(),
            TxnOpResponse::Delete(done) => done.header(),
            TxnOpResponse::Txn(inner) => return highest_revision(&inner.op_responses()),
        };
        header.map(ResponseHeader::revision)
    });
    revisions.max()
}
