//! The votes for one claim, and their result.

use std::time::Duration;

use dlock_contract::{Error, Result};

use super::nodes::majority;
use super::round::{Answer, Unable};
use super::token::Token;

/// The vote of a node about a claim.
#[derive(Clone, Debug)]
pub(super) enum Vote {
    /// The claim has the lock there.
    Granted {
        /// The number that was drawn from the node's counter then.
        drawn: u64,
        /// Whether the node has a vote. A node that may have lost locks has none yet.
        counts: bool,
    },
    /// Another owner has the lock there.
    Refused {
        /// Identifies the other owner without naming it.
        by: String,
        /// For how long, if nobody renews it.
        left: Duration,
        /// Whether the node has a vote.
        counts: bool,
    },
}

/// The result of the votes.
#[derive(Debug)]
pub(super) enum Verdict {
    /// A majority has granted it.
    Won(Token),
    /// One other owner has the lock on a majority, at least for this time unless it is renewed. The owner has no name if the
    /// lock is free, and left to others.
    Held(String, Duration),
    /// No owner has a majority: several have asked at once, or an owner has gone half way.
    Split,
    /// A majority cannot vote.
    Short(Short),
}

/// A majority gave no usable answer.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) error: Error,
    /// With the silent nodes there could be a majority.
    pub(super) by_silence: bool,
}

impl From<Error> for Short {
    fn from(error: Error) -> Self {
        Self { error, by_silence: false }
    }
}

/// Votes counted so far.
#[derive(Debug)]
pub(super) struct Tally {
    nodes: usize,
    /// The nodes that have granted it, and what each has drawn.
    granted: Vec<(usize, u64)>,
    refused: usize,
    /// Nodes without a vote that have answered.
    resting: usize,
    refusals: Vec<(String, Duration)>,
    unable: Vec<Unable>,
    /// The nodes on which another owner has the lock. They have nothing of ours.
    pub(super) refusing: Vec<usize>,
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            granted: Vec::new(),
            refused: 0,
            resting: 0,
            refusals: Vec::new(),
            unable: Vec::new(),
            refusing: Vec::new(),
        }
    }

    pub(super) fn count(&mut self, node: usize, vote: Answer<Vote>) {
        match vote {
            Ok(Vote::Granted { drawn, counts: true }) => self.granted.push((node, drawn)),
            // It may have forgotten tokens too.
            Ok(Vote::Granted { counts: false, .. }) => self.resting += 1,
            Ok(Vote::Refused { by, left, counts }) => {
                self.refusing.push(node);
                self.refusals.push((by, left));
                *(if counts { &mut self.refused } else { &mut self.resting }) += 1;
            }
            Err(unable) => self.unable.push(unable),
        }
    }

    /// Whether the missing answers can no longer change the result.
    pub(super) fn is_decided(&self, pending: usize) -> bool {
        let heard = self.granted.len() + self.refused;
        self.is_won()
            || self.is_short()
            // Whether it is contention or an outage must be sure too.
            || (!self.can_be_won(pending) && heard >= majority(self.nodes))
            || pending == 0
    }

    pub(super) fn is_won(&self) -> bool {
        self.can_be_won(0)
    }

    /// Whether a majority has granted it if all missing answers are grants.
    pub(super) fn can_be_won(&self, pending: usize) -> bool {
        self.granted.len() + pending >= majority(self.nodes)
    }

    fn is_short(&self) -> bool {
        self.unable.len() + self.resting > self.nodes - majority(self.nodes)
    }

    pub(super) fn verdict(&self) -> Verdict {
        let majority = majority(self.nodes);
        if let Some(token) = Token::of(&self.granted, self.nodes) {
            return Verdict::Won(token);
        }
        if self.is_short() {
            return Verdict::Short(self.shortage());
        }
        let mut refusals = self.refusals.clone();
        refusals.sort();
        let holder = refusals.chunk_by(|one, other| one.0 == other.0).find(|of_one| of_one.len() >= majority);
        match holder {
            // The time at which the owner has no majority any more, because leases have ended. The leases of one owner
            // are sorted by time.
            Some(leases) => Verdict::Held(leases[0].0.clone(), leases[leases.len() - majority].1),
            None => Verdict::Split,
        }
    }

    fn shortage(&self) -> Short {
        if self.resting == 0 {
            return shortage(self.nodes, &self.unable);
        }
        let text = format!(
            "no majority of the {} Redlock nodes can vote: {} or more may have forgotten locks in a restart and have no vote until max_ttl is over, {} gave no usable answer",
            self.nodes,
            self.resting,
            self.unable.len()
        );
        Short { error: because(text, &self.unable), by_silence: by_silence(self.nodes, self.resting, &self.unable) }
    }
}

/// Why too few nodes have answered: an outage, unless a majority can never vote, so that no retry can help.
pub(super) fn shortage(nodes: usize, unable: &[Unable]) -> Short {
    let mut for_good = unable.iter().filter(|unable| !unable.error.is_retryable());
    let count = for_good.clone().count();
    let error = match for_good.next().filter(|_| count > nodes - majority(nodes)) {
        Some(first) => first.error.again(),
        None => because(format!("{} or more of the {nodes} Redlock nodes gave no usable answer", unable.len()), unable),
    };
    Short { error, by_silence: by_silence(nodes, 0, unable) }
}

/// Whether the silent nodes, and those that were not waited for, would be enough for a majority.
fn by_silence(nodes: usize, resting: usize, unable: &[Unable]) -> bool {
    let silent = unable.iter().filter(|unable| unable.was_silent).count();
    silent > 0 && resting + unable.len() - silent <= nodes - majority(nodes)
}

fn because(text: String, unable: &[Unable]) -> Error {
    // An error of a silent node comes first: its text has the time limit, which a longer ttl raises.
    match unable.iter().find(|unable| unable.was_silent).or(unable.first()) {
        // In the text too: few print the cause of an error.
        Some(one) => Error::outage(format!("{text}; one of them: {}", one.error.message())).because(one.error.clone()),
        None => Error::outage(text),
    }
}

/// The outcome of a release on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeAnswer {
    Yes,
    /// The node had nothing of the lock.
    No,
    /// The node has nothing of the lock now; whether it had before is unknown.
    Unknown,
}

impl From<bool> for NodeAnswer {
    fn from(undone: bool) -> Self {
        if undone { Self::Yes } else { Self::No }
    }
}

/// The outcomes on the nodes, each counted once.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeCount {
    yes: usize,
    no: usize,
    unknown: usize,
}

impl NodeCount {
    /// A count that starts with this many nodes that said yes before.
    pub(super) fn of(yes: usize) -> Self {
        Self { yes, ..Self::default() }
    }

    pub(super) fn add(&mut self, said: impl Into<NodeAnswer>) {
        *match said.into() {
            NodeAnswer::Yes => &mut self.yes,
            NodeAnswer::No => &mut self.no,
            NodeAnswer::Unknown => &mut self.unknown,
        } += 1;
    }

    /// The number of nodes that gave an answer.
    pub(super) fn heard(&self) -> usize {
        self.yes + self.no + self.unknown
    }

    /// The decision of all nodes; `None` if there is none yet.
    pub(super) fn decision(&self, nodes: usize) -> Option<bool> {
        if self.yes >= majority(nodes) {
            Some(true)
        } else if self.no > nodes - majority(nodes) {
            Some(false)
        } else {
            None
        }
    }
}

/// A shortage of answers, unless the decision is made.
pub(super) fn decided(count: &NodeCount, nodes: usize, unable: &[Unable]) -> Result<bool> {
    count.decision(nodes).ok_or_else(|| shortage(nodes, unable).error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::ErrorKind;

    const SECOND: Duration = Duration::from_secs(1);

    fn yes(drawn: u64) -> Answer<Vote> {
        Ok(Vote::Granted { drawn, counts: true })
    }

    fn no(by: &str, left: u32) -> Answer<Vote> {
        Ok(Vote::Refused { by: by.into(), left: SECOND * left, counts: true })
    }

    fn down() -> Answer<Vote> {
        Err(Error::outage("down").into())
    }

    fn silent() -> Answer<Vote> {
        down().map_err(|down| Unable { was_silent: true, ..down })
    }

    fn resting() -> Answer<Vote> {
        Ok(Vote::Granted { drawn: 9, counts: false })
    }

    fn foreign() -> Answer<Vote> {
        Err(Error::new(ErrorKind::KeyConflict, "foreign").into())
    }

    /// Counts in this order up to the decision, and returns the number of answers that it took.
    fn count(votes: &[Answer<Vote>]) -> (usize, Verdict) {
        let mut tally = Tally::new(5);
        for (number, vote) in votes.iter().enumerate() {
            if tally.is_decided(5 - number) {
                return (number, tally.verdict());
            }
            tally.count(number, vote.clone());
        }
        assert!(tally.is_decided(0));
        (votes.len(), tally.verdict())
    }

    #[test]
    fn a_majority_wins() {
        let (taken, verdict) = count(&[yes(3), down(), yes(7), yes(5), down()]);
        let kept_by = vec![2];
        assert!(matches!((taken, verdict), (4, Verdict::Won(token)) if token == Token { value: 7, kept_by }));
    }

    #[test]
    fn two_of_five_are_no_majority_and_neither_are_nodes_without_a_vote() {
        assert!(matches!(count(&[yes(1), yes(1), resting(), resting(), resting()]), (5, Verdict::Short(_))));
        assert!(matches!(count(&[yes(1), yes(1), resting(), no("a", 1), no("a", 1)]), (5, Verdict::Split)));
    }

    #[test]
    fn a_holder_is_told_from_a_split_vote() {
        let (taken, verdict) = count(&[no("a", 3), no("a", 1), no("a", 2), yes(1), yes(1)]);
        assert!(matches!((taken, verdict), (3, Verdict::Held(_, left)) if left == SECOND));
        let held = [no("a", 3), no("a", 1), no("a", 2), no("b", 1), no("a", 9)];
        let mut tally = Tally::new(5);
        held.iter().enumerate().for_each(|(node, vote)| tally.count(node, vote.clone()));
        // Of its four leases two may end, and then it has no majority.
        assert!(matches!(tally.verdict(), Verdict::Held(_, left) if left == 2 * SECOND));
        assert_eq!(tally.refusing, [0, 1, 2, 3, 4]);
        assert!(matches!(count(&[no("a", 3), no("b", 1), yes(1), yes(1), no("c", 1)]).1, Verdict::Split));
    }

    #[test]
    fn an_outage_is_not_taken_for_contention_whatever_comes_first() {
        for votes in
            [[no("a", 1), no("a", 1), down(), down(), down()], [down(), no("a", 1), down(), no("a", 1), down()]]
        {
            let (taken, verdict) = count(&votes);
            assert!(
                matches!(&verdict, Verdict::Short(short) if *short.error.kind() == ErrorKind::Outage),
                "{verdict:?}"
            );
            assert_eq!(taken, 5);
        }
        assert!(matches!(count(&[down(), down(), down()]), (3, Verdict::Short(_))));
    }

    #[test]
    fn an_error_that_no_retry_helps_is_returned_once_a_majority_has_it() {
        let kind = |votes: &[Answer<Vote>]| match count(votes).1 {
            Verdict::Short(short) => short.error.kind().clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(&[foreign(), foreign(), foreign()]), ErrorKind::KeyConflict);
        assert_eq!(kind(&[foreign(), down(), foreign()]), ErrorKind::Outage);
        assert!(matches!(count(&[foreign(), foreign(), yes(1), yes(1), yes(1)]).1, Verdict::Won(_)));
    }

    #[test]
    fn silent_nodes_are_the_cause_if_their_votes_would_make_a_majority() {
        let by_silence = |votes: &[Answer<Vote>]| match count(votes).1 {
            Verdict::Short(short) => short.by_silence,
            other => panic!("{other:?}"),
        };
        assert!(by_silence(&[silent(), silent(), silent()]));
        assert!(by_silence(&[yes(1), down(), no("a", 1), down(), silent()]));
        assert!(by_silence(&[resting(), yes(1), down(), yes(1), silent()]));
        // A node that has not answered at the decision may be one of these too.
        assert!(by_silence(&[down(), silent(), down()]));
        assert!(!by_silence(&[down(), yes(1), down(), yes(1), down()]));
        assert!(!by_silence(&[down(), resting(), yes(1), yes(1), foreign()]));
        assert!(!by_silence(&[resting(), resting(), resting()]));
        // Two nodes no longer have the lock, and one was cut off.
        assert!(!shortage(5, &[down().unwrap_err()]).by_silence);
    }

    #[test]
    fn a_decision_needs_a_majority_for_or_against() {
        let of = |yes, no| NodeCount { yes, no, unknown: 5 - yes - no }.decision(5);
        assert_eq!([of(3, 2), of(2, 3), of(2, 2), of(0, 2)], [Some(true), Some(false), None, None]);
    }
}
