//! One request to all nodes at once, with a short time limit for each.

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Result};
use dlock_store::CallerRuntime;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::node::{Link, Node};
use dlock_redis::internal::connection::OPEN_LIMIT;

/// The time limits for nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For one node's answer over an open connection.
    pub(super) answer: Duration,
    /// For a connection, from the moment at which it began to be opened: that takes several round trips.
    open: Duration,
    /// For a majority, where silent nodes are what is missing.
    pub(super) in_all: Duration,
    /// Whether another connection to the node may be used if none can be opened.
    takes_any: bool,
}

/// Longer than a round trip around the world.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(500);

/// For this time a busy machine may not answer at all, and not only one node on it.
const BUSY_TIME: Duration = Duration::from_millis(300);

/// A little after the end of an opening that gets no answer.
const AFTER_OPEN_LIMIT: Duration = OPEN_LIMIT.saturating_add(Duration::from_millis(250));

impl Patience {
    /// For a lock with this ttl: a node is waited for by a two-thousandth to a two-hundredth of it, as in Redlock's
    /// description (5 to 50 ms of 10 s), and as close to [`LONGEST_ROUND_TRIP`] as that allows.
    pub(super) fn of(ttl: Duration) -> Self {
        let answer = LONGEST_ROUND_TRIP.clamp(ttl / 2000, ttl / 200);
        let in_all = BUSY_TIME.min(ttl / 6).max(answer);
        Self { answer, open: (ttl / 4).min(Duration::from_secs(1)).max(in_all), in_all, takes_any: false }
    }

    /// For a renewal: it asks once, and waits for all the time that there is. It needs no order among other requests.
    pub(super) fn of_renewal(ttl: Duration) -> Self {
        let patience = Self::of(ttl);
        Self { answer: patience.in_all, takes_any: true, ..patience }
    }

    /// For what is no race against a ttl, and of which a majority has to be heard all the same: a release. Less than
    /// the second after which the engine gives up an abandon.
    pub(super) const UNHURRIED: Self = Self::each(Duration::from_millis(800));

    /// For the first look at all nodes. An opening ends by a limit of its own, and its error says what to look for.
    pub(super) const FIRST: Self = Self { answer: OPEN_LIMIT, ..Self::each(AFTER_OPEN_LIMIT) };

    /// For a sign of life of all nodes. Less than the 5 s after which the engine gives the whole question up.
    pub(super) const SIGN: Self = Self::each(Duration::from_secs(2));

    const fn each(time: Duration) -> Self {
        Self { answer: time, open: time, in_all: time, takes_any: false }
    }
}

/// The answer of one node, or the reason why there is none.
pub(super) type Answer<T> = Result<T, Unable>;

/// Why a node gave no usable answer.
#[derive(Clone, Debug)]
pub(super) struct Unable {
    /// Shared, because several callers may wait for one connection.
    pub(super) error: Arc<Error>,
    /// The node was silent, so it may answer the next time.
    pub(super) was_silent: bool,
}

impl From<Arc<Error>> for Unable {
    fn from(error: Arc<Error>) -> Self {
        Self { error, was_silent: false }
    }
}

impl From<Error> for Unable {
    fn from(error: Error) -> Self {
        Arc::new(error).into()
    }
}

impl Unable {
    pub(super) fn silent(text: String) -> Self {
        Self { was_silent: true, ..Error::outage(text).into() }
    }
}

/// The answers, as they come. What is still under way when this is dropped goes on by itself: a connection whose
/// requests are given up again and again would pass for a silent one.
pub(super) struct Answers<T: Send + 'static> {
    answers: FuturesUnordered<BoxFuture<'static, (usize, Answer<T>)>>,
    over: Arc<AtomicBool>,
    insists: bool,
    place: CallerRuntime,
}

/// Asks the nodes with these numbers.
pub(super) fn ask<T, F>(
    nodes: &[Arc<Node>],
    which: impl Iterator<Item = usize>,
    patience: Patience,
    request: impl Fn(Arc<Node>, Arc<Link>) -> F + Clone + Send + 'static,
) -> Result<Answers<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let place = CallerRuntime::here()?;
    let over = Arc::new(AtomicBool::new(false));
    let one = |number: usize| {
        let node = nodes.get(number)?.clone();
        let (request, over, place) = (request.clone(), over.clone(), place.clone());
        let asked = async move { (number, one(node, &place, patience, &over, request).await) };
        Some(Box::pin(asked) as BoxFuture<'static, _>)
    };
    let answers = which.filter_map(one).collect();
    Ok(Answers { answers, over, insists: false, place })
}

async fn one<T, F: Future<Output = Result<T>>>(
    node: Arc<Node>,
    place: &CallerRuntime,
    patience: Patience,
    over: &AtomicBool,
    request: impl Fn(Arc<Node>, Arc<Link>) -> F,
) -> Answer<T> {
    let clock = node.clock().clone();
    let link = match node.link_of(place.origin()) {
        Some(link) => link,
        None => {
            let opening = node.open(place);
            let until = opening.since.after(patience.open).max(clock.now().after(patience.answer));
            let opened = clock.timeout_at(until, opening.done()).await;
            let silent = || Unable::silent(format!("the node {node:?} did not accept a connection in time"));
            let opened = opened.map_or_else(|| Err(silent()), |opened| opened.map_err(Unable::from));
            match (opened, patience.takes_any) {
                (Err(why), true) => node.any_link().ok_or(why)?,
                (opened, _) => opened?,
            }
        }
    };
    // A request that got no connection in time is not sent any more: it would arrive after the request that undoes it.
    if over.load(Ordering::Relaxed) {
        return Err(Error::outage("the node was not asked").into());
    }
    let until = clock.now().after(patience.answer);
    let mut answer = pin!(request(node.clone(), link));
    let answered = match clock.timeout_at(until, answer.as_mut()).await {
        Some(answered) => Some(answered),
        None => come_meanwhile(answer).await,
    };
    let text = || format!("the node {node:?} did not answer within {:?}", patience.answer);
    Ok(answered.ok_or_else(|| Unable::silent(text()))??)
}

/// An answer that has already arrived. A caller that was kept from running may find its time over before it has read
/// it.
async fn come_meanwhile<F: Future>(mut answer: Pin<&mut F>) -> Option<F::Output> {
    // Once for the sockets, once for the connection's task, once more where that hands on to another one.
    for _ in 0..3 {
        tokio::task::yield_now().await;
        if let Poll::Ready(answered) = futures::poll!(answer.as_mut()) {
            return Some(answered);
        }
    }
    None
}

impl<T: Send + 'static> Answers<T> {
    /// Requests that could not be sent yet are still sent when nobody waits for the answers any more.
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
        clock: &dlock_store::Clock,
        until: BootInstant,
    ) -> Option<(usize, Answer<T>)> {
        clock.timeout_at(until, self.answers.next()).await.flatten()
    }

    /// The number of nodes that have not answered yet.
    pub(super) fn pending(&self) -> usize {
        self.answers.len()
    }
}

impl<T: Send + 'static> Drop for Answers<T> {
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

    fn of(milliseconds: u64) -> Patience {
        Patience::of(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_node_is_waited_for_by_a_two_thousandth_to_a_two_hundredth_of_the_ttl() {
        let answer = |milliseconds| of(milliseconds).answer.as_micros();
        assert_eq!(
            [1000, 10_000, 30_000, 60_000, 300_000, 3_600_000].map(answer),
            [5000, 50_000, 150_000, 300_000, 500_000, 1_800_000]
        );
        for ttl in (1000..100_000).chain([1_000_000, 86_400_000]).map(Duration::from_millis) {
            let Patience { answer, .. } = Patience::of(ttl);
            assert!(ttl / 2000 <= answer && answer <= ttl / 200, "{answer:?} of {ttl:?}");
        }
    }

    #[test]
    fn a_majority_is_waited_for_longer_but_something_of_the_ttl_is_left() {
        assert_eq!([1000, 2000, 30_000, 900_000].map(|ttl| of(ttl).in_all.as_millis()), [166, 300, 300, 500]);
        for ttl in [1000, 2000, 30_000, 900_000, 86_400_000] {
            let Patience { answer, open, in_all, .. } = of(ttl);
            // The last round may begin when the time is nearly over. It asks for a free lock, by the script, and to write the
            // token; for the last two it may have to connect.
            assert!(in_all + open * 2 + answer * 4 < Duration::from_millis(ttl) * 8 / 10, "{ttl}");
        }
    }
}
