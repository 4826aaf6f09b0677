//! Combines transactions of many tasks: those that come while another one is under way leave together, as one transaction.
//!
//! Each of them is nested with its own comparisons, so that one whose comparisons fail changes nothing for the others. For
//! the server this is one request and one entry of its log. A quiet connection sends at once: one task alone waits for
//! nobody.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_store::CallerRuntime;
use etcd_client::{KvClient, Txn, TxnOp};
use futures::future::join_all;
use tokio::sync::oneshot;

use super::answers::TxnAnswers;
use super::cluster_id::same_cluster;
use super::fault::Fault;
use super::names::{EPOCHS, LockRange};

/// The most transactions in one batch. The server limits the operations of a transaction, to 128 by default. A nested
/// transaction gets what the outer one leaves. So with this many, each of them may have 64 operations.
const MAX_BATCH: usize = 64;

/// The way to the server that the tasks of one runtime share.
pub(super) struct Combiner {
    client: KvClient,
    /// The id of the cluster that the client was connected to.
    cluster: u64,
    /// The highest revision of the store in the answers to transactions.
    seen: Arc<AtomicI64>,
    runtime: CallerRuntime,
    /// How many requests are under way.
    under_way: AtomicUsize,
    next: Mutex<Vec<Joined>>,
}

/// The keys that a transaction of a claim may put or delete: those of its lock, and an epoch key.
pub(super) struct Scope {
    lock: Arc<str>,
    epoch: Option<Vec<u8>>,
}

impl Scope {
    pub(super) fn of(range: &LockRange) -> Self {
        Self { lock: range.prefix().clone(), epoch: None }
    }

    /// The transaction also puts this epoch key.
    pub(super) fn and_epoch(mut self, epoch: Vec<u8>) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Whether transactions with these scopes must not leave together.
    fn meets(&self, other: &Self) -> bool {
        // All keys that one transaction creates have the same revision. So two keys of one lock would have no order. If
        // one literal name begins with another, both count as one lock.
        let same_lock = self.lock.starts_with(&*other.lock) || other.lock.starts_with(&*self.lock);
        // The server refuses a transaction that puts a key twice.
        same_lock || self.epoch.is_some() && self.epoch == other.epoch
    }
}

/// A transaction that leaves with others.
struct Joined {
    scope: Scope,
    txn: Txn,
    reply: oneshot::Sender<Result<TxnAnswers, Fault>>,
}

/// The right to send the next batch. One task has it. If that task is dropped, it drops the batch too, and the callers
/// of the batch get an error.
struct Departure(Option<Arc<Combiner>>);

impl Departure {
    async fn send(mut self) {
        // Other tasks that are ready to run can join first.
        tokio::task::yield_now().await;
        if let Some(combiner) = self.0.take() {
            let batch = std::mem::take(&mut *combiner.next());
            combiner.together(batch).await;
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let Some(combiner) = self.0.take() else { return };
        let batch = std::mem::take(&mut *combiner.next());
        // Dropped after the mutex is free, because this wakes the callers.
        drop(batch);
    }
}

impl Joined {
    /// Whether the caller still waits for the answer. A transaction that its caller gave up must not leave any more.
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }
}

impl Combiner {
    pub(super) fn new(client: KvClient, cluster: u64, seen: Arc<AtomicI64>, runtime: CallerRuntime) -> Arc<Self> {
        // With a bound, an answer that is larger would be lost after the server has executed the request.
        let client = client.max_decoding_message_size(usize::MAX);
        Arc::new(Self { client, cluster, seen, runtime, under_way: AtomicUsize::new(0), next: Mutex::default() })
    }

    /// Sends a transaction that changes no keys but those of its scope.
    pub(super) async fn send(self: &Arc<Self>, scope: Scope, txn: Txn) -> Result<TxnAnswers, Fault> {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            return self.alone(txn).await;
        }
        match self.join(scope, txn) {
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(Fault::Broken("the runtime is shutting down".into()))),
            Err(txn) => self.alone(txn).await,
        }
    }

    /// Sends a transaction by itself.
    pub(super) async fn alone(&self, txn: Txn) -> Result<TxnAnswers, Fault> {
        let _under_way = UnderWay::new(&self.under_way);
        let answer = self.client.clone().txn(txn).await?;
        same_cluster(self.cluster, answer.header())?;
        TxnAnswers::checked(&answer, &self.seen)
    }

    /// Puts a transaction into the next batch. Gives it back if it must not leave with one that is there.
    fn join(self: &Arc<Self>, scope: Scope, txn: Txn) -> Result<oneshot::Receiver<Result<TxnAnswers, Fault>>, Txn> {
        let mut next = self.next();
        if next.iter().any(|joined| joined.scope.meets(&scope)) {
            return Err(txn);
        }
        let (reply, answer) = oneshot::channel();
        next.push(Joined { scope, txn, reply });
        let is_first = next.len() == 1;
        let full = (next.len() == MAX_BATCH).then(|| std::mem::take(&mut *next));
        // A runtime that shuts down drops the task below at once. The task's drop locks this mutex.
        drop(next);
        // In tasks: if this caller is dropped, the other callers still get their answers.
        if is_first {
            self.runtime.spawn(Departure(Some(self.clone())).send());
        }
        if let Some(batch) = full {
            let combiner = self.clone();
            self.runtime.spawn(async move { combiner.together(batch).await });
        }
        Ok(answer)
    }

    async fn together(&self, mut batch: Vec<Joined>) {
        batch.retain(Joined::is_wanted);
        if batch.is_empty() {
            return;
        }
        let inner: Vec<_> = batch.iter().map(|joined| TxnOp::txn(joined.txn.clone())).collect();
        // The server does not count the puts of nested transactions against its quota. This put is never executed, but
        // it counts. Without it, the server would grant locks when it has no space.
        let counted = TxnOp::put(format!("{EPOCHS}never"), "", None);
        match self.alone(Txn::new().and_then(inner).or_else([counted])).await {
            Ok(mut answers) => {
                for joined in batch {
                    let _ = joined.reply.send(answers.next_txn());
                }
            }
            // The server checks all transactions before it changes anything. So it refused one of them, or the size of
            // the batch.
            Err(fault) if fault.refuses_content() => {
                batch.retain(Joined::is_wanted);
                let again = async |Joined { txn, reply, .. }| reply.send(repeated(&fault, self.alone(txn).await));
                join_all(batch.into_iter().map(again)).await;
            }
            Err(fault) => {
                for joined in batch {
                    let _ = joined.reply.send(Err(fault.clone()));
                }
            }
        }
    }

    fn next(&self) -> MutexGuard<'_, Vec<Joined>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a transaction that was sent again after this refusal.
///
/// When the server runs out of space, it may execute a transaction and still report that it has no space. Then the
/// comparisons of the second transaction fail, because the first one has changed the keys. A release would take that
/// for a lost lock. So this returns the refusal.
fn repeated(refusal: &Fault, answer: Result<TxnAnswers, Fault>) -> Result<TxnAnswers, Fault> {
    match (refusal, answer) {
        (Fault::NoSpace, Ok(answers)) if !answers.succeeded => Err(Fault::NoSpace),
        (_, answer) => answer,
    }
}

/// A request under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(under_way: &'a AtomicUsize) -> Self {
        under_way.fetch_add(1, Ordering::Relaxed);
        Self(under_way)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_transaction_that_changed_nothing_is_in_doubt_if_space_had_ended() {
        let answer = |succeeded| Ok(TxnAnswers::without_reads(succeeded));
        assert!(matches!(repeated(&Fault::NoSpace, answer(false)), Err(Fault::NoSpace)));
        assert!(repeated(&Fault::NoSpace, answer(true)).is_ok_and(|answers| answers.succeeded));
        assert!(repeated(&Fault::LeaseGone, answer(false)).is_ok_and(|answers| !answers.succeeded));
    }
}
