//! One question to all nodes side by side, with little patience for each.

use std::future::{Future, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::node::{Link, Node};
use crate::backends::redis::connection::OPEN_LIMIT;
use crate::background::Place;
use crate::clock::BootInstant;
use crate::error::{Error, Result};

/// How long one node is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For an answer over an open connection.
    pub(super) answer: Duration,
    /// For a connection, from the moment at which it began to be opened: that takes several round trips.
    open: Duration,
}

/// A two-hundredth of 30 s; of a shorter ttl it would be less than what a busy machine takes for an answer.
const LEAST: Duration = Duration::from_millis(150);

impl Patience {
    /// For a lock with this ttl: a two-hundredth, but no less than [`LEAST`], or a sixth of a very short ttl. All nodes are
    /// asked at once, so all of them together cost no more.
    pub(super) fn of(ttl: Duration) -> Self {
        let answer = (ttl / 200).max(LEAST.min(ttl / 6));
        Self { answer, open: (ttl / 4).min(Duration::from_secs(1)).max(answer) }
    }

    /// For what is no race against a ttl, and of which a majority has to be heard all the same: a release.
    pub(super) fn or_unhurried(self) -> Self {
        Self { answer: self.answer.max(UNHURRIED), open: self.open.max(UNHURRIED) }
    }

    /// For the first look at all nodes.
    pub(super) const FIRST: Self = Self { answer: OPEN_LIMIT, open: OPEN_LIMIT };
}

/// Less than the second after which the core gives up an abandon.
const UNHURRIED: Duration = Duration::from_millis(800);

/// What one node answered, or why there is no answer.
pub(super) type Answer<T> = Result<T, Arc<Error>>;

/// The answers, as they come. What is still under way when this is dropped goes on by itself: a connection whose
/// requests are given up again and again would pass for a silent one.
pub(super) struct Asked<T: Send + 'static> {
    answers: FuturesUnordered<BoxFuture<'static, (usize, Answer<T>)>>,
    over: Arc<AtomicBool>,
    insists: bool,
    place: Place,
}

/// Asks the nodes of these numbers.
pub(super) fn ask<T, F>(
    nodes: &[Arc<Node>],
    which: impl Iterator<Item = usize>,
    patience: Patience,
    request: impl Fn(Arc<Node>, Arc<Link>) -> F + Clone + Send + 'static,
) -> Result<Asked<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let place = Place::here()?;
    let over = Arc::new(AtomicBool::new(false));
    let one = |number: usize| {
        let node = nodes.get(number)?.clone();
        let (request, over, place) = (request.clone(), over.clone(), place.clone());
        let asked = async move { (number, one(node, &place, patience, &over, request).await.map_err(shared)) };
        Some(Box::pin(asked) as BoxFuture<'static, _>)
    };
    let answers = which.filter_map(one).collect();
    Ok(Asked { answers, over, insists: false, place })
}

/// An error of which others may have a part.
fn shared(error: OneOrShared) -> Arc<Error> {
    match error {
        OneOrShared::One(error) => Arc::new(error),
        OneOrShared::Shared(error) => error,
    }
}

enum OneOrShared {
    One(Error),
    Shared(Arc<Error>),
}

impl From<Error> for OneOrShared {
    fn from(error: Error) -> Self {
        Self::One(error)
    }
}

impl From<Arc<Error>> for OneOrShared {
    fn from(error: Arc<Error>) -> Self {
        Self::Shared(error)
    }
}

async fn one<T, F: Future<Output = Result<T>>>(
    node: Arc<Node>,
    place: &Place,
    patience: Patience,
    over: &AtomicBool,
    request: impl Fn(Arc<Node>, Arc<Link>) -> F,
) -> Result<T, OneOrShared> {
    let clock = node.clock().clone();
    let silent = || Error::outage(format!("the node {node:?} did not answer within {:?}", patience.answer));
    let link = match node.link_of(place.id()) {
        Some(link) => link,
        None => {
            let opening = node.open(place);
            let until = opening.since.after(patience.open).max(clock.now().after(patience.answer));
            clock.timeout_at(until, opening.done()).await.ok_or_else(silent)??
        }
    };
    // What had no connection while it mattered is not sent any more: it would come after what undoes it.
    if over.load(Ordering::Relaxed) {
        return Err(Error::outage("the node was not asked").into());
    }
    let until = clock.now().after(patience.answer);
    let answered = clock.timeout_at(until, request(node.clone(), link)).await;
    Ok(answered.ok_or_else(silent)??)
}

impl<T: Send + 'static> Asked<T> {
    /// Also what could not be sent yet is still sent when nobody waits for the answers any more.
    pub(super) fn insist(mut self) -> Self {
        self.insists = true;
        self
    }

    /// The next answer, by the number of its node.
    pub(super) async fn next(&mut self) -> Option<(usize, Answer<T>)> {
        self.answers.next().await
    }

    /// The next answer, if it comes in time.
    pub(super) async fn next_until(
        &mut self,
        clock: &crate::clock::Clock,
        until: BootInstant,
    ) -> Option<(usize, Answer<T>)> {
        clock.timeout_at(until, self.answers.next()).await.flatten()
    }

    /// How many have not answered yet.
    pub(super) fn pending(&self) -> usize {
        self.answers.len()
    }
}

impl<T: Send + 'static> Drop for Asked<T> {
    fn drop(&mut self) {
        if !self.insists {
            self.over.store(true, Ordering::Relaxed);
        }
        if !self.answers.is_empty() {
            let rest = std::mem::take(&mut self.answers);
            self.place.spawn(rest.for_each(|_| ready(())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_a_small_part_of_the_ttl() {
        let of = |milliseconds| Patience::of(Duration::from_millis(milliseconds)).answer.as_millis();
        assert_eq!([500, 2000, 10_000, 30_000, 600_000].map(of), [83, 150, 150, 150, 3000]);
        for milliseconds in [500, 2000, 30_000, 600_000] {
            let ttl = Duration::from_millis(milliseconds);
            let patience = Patience::of(ttl);
            // A round asks twice and gives back once, and something of the ttl has to be left.
            assert!(patience.open + patience.answer * 3 < ttl * 8 / 10, "{ttl:?}");
        }
    }
}
