//! The fencing token of a grant. It is made of the nodes' answers alone, whatever their clocks say.
//!
//! Each node draws its answer from its counter, so the answer is above every token that this node keeps: its counter is
//! at least as high. A token counts once a majority keeps it, and has the lock for us at that moment.
//!
//! The token is the least number that a majority of the answers do not exceed. That majority shares a node with the one
//! that keeps an earlier token of the lock. The node's answer is above the earlier token, so the new token is too. A node
//! whose answer is not below the token keeps it already. If these are a majority, nothing has to be written back.

use super::nodes::majority;

/// A token, and where it is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) value: u64,
    /// The nodes whose counter was at least as high when they gave us the lock.
    pub(super) kept_by: Vec<usize>,
}

impl Token {
    /// From what these nodes drew, of so many nodes; `None` if they are no majority.
    pub(super) fn of(drawn: &[(usize, u64)], nodes: usize) -> Option<Self> {
        let mut sorted: Vec<_> = drawn.iter().map(|(_, drawn)| *drawn).collect();
        sorted.sort_unstable();
        let value = *sorted.get(majority(nodes) - 1)?;
        let kept_by = drawn.iter().filter(|(_, drawn)| *drawn >= value).map(|(node, _)| *node).collect();
        Some(Self { value, kept_by })
    }

    /// Whether a majority keeps it.
    pub(super) fn is_kept(&self, nodes: usize) -> bool {
        self.kept_by.len() >= majority(nodes)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// For how long a node that has forgotten is without a vote.
    const REST: u64 = 500;
    /// Between two attempts. Far more than what is drawn meanwhile.
    const STEP: u64 = 100;

    /// A node, as far as tokens are concerned.
    #[derive(Clone, Debug)]
    struct Model {
        counter: u64,
        /// How far its clock is ahead.
        ahead: u64,
        votes_from: u64,
        is_raised: bool,
        has_lock: bool,
    }

    impl Model {
        fn forget(&mut self, now: u64) {
            let votes_from = now + REST;
            *self = Self { counter: now + self.ahead, votes_from, is_raised: false, has_lock: false, ..self.clone() };
        }

        /// As the scripts do, and those of the version before, which never draw below the clock.
        fn take(&mut self, now: u64, is_old: bool) -> u64 {
            let raises = !is_old && !self.is_raised && now >= self.votes_from;
            if raises {
                self.counter = self.counter.max(now + self.ahead);
                self.is_raised = true;
            }
            self.counter += 1;
            if is_old {
                self.counter = self.counter.max(now + self.ahead);
            }
            self.has_lock = true;
            self.counter
        }

        fn confirm(&mut self, token: u64) -> bool {
            if self.has_lock {
                self.counter = self.counter.max(token);
            }
            self.has_lock
        }
    }

    /// One attempt on a lock that is free: requests and answers get lost, and nodes forget. `None` if it was not granted.
    fn attempt(nodes: &mut [Model], now: u64, is_old: bool, random: &mut Rng) -> Option<u64> {
        let most = majority(nodes.len());
        let mut order: Vec<_> = (0..nodes.len()).collect();
        random.shuffle(&mut order);
        nodes.iter_mut().for_each(|node| node.has_lock = false);
        let (mut drawn, mut all) = (Vec::new(), 0);
        for node in order {
            // Of other locks, before this one.
            nodes[node].counter += random.u64(..3);
            if random.u8(..8) == 0 {
                continue;
            }
            let number = nodes[node].take(now, is_old);
            if random.u8(..8) == 0 || (is_old && drawn.len() >= most) {
                continue;
            }
            if now >= nodes[node].votes_from {
                drawn.push((node, number));
            }
            all = all.max(number);
            // A majority is enough, and more may have come.
            if drawn.len() >= most && random.bool() {
                break;
            }
        }
        let token = Token::of(&drawn, nodes.len())?;
        if random.u8(..8) == 0 {
            let node = random.usize(..nodes.len());
            nodes[node].forget(now);
        }
        let is_kept = !is_old && token.is_kept(nodes.len());
        let (value, kept_by) = if is_old { (all, Vec::new()) } else { (token.value, token.kept_by) };
        let mut kept = kept_by.len();
        if !is_kept {
            for (_, node) in nodes.iter_mut().enumerate().filter(|(number, _)| !kept_by.contains(number)) {
                node.counter += random.u64(..3);
                kept += usize::from(random.u8(..8) > 0 && node.confirm(value));
            }
        }
        (is_kept || kept >= most).then_some(value)
    }

    #[test]
    fn tokens_rise_whatever_is_lost_and_forgotten_beside_programs_of_the_version_before() {
        let mut granted = [0; 2];
        for seed in 0..10_000 {
            let mut random = Rng::with_seed(seed);
            let count = [3, 5][random.usize(..2)];
            let mut now = 10 * REST;
            let mut nodes: Vec<_> = (0..count)
                .map(|_| Model {
                    counter: now - random.u64(..REST),
                    ahead: random.u64(..REST),
                    votes_from: 0,
                    is_raised: random.bool(),
                    has_lock: false,
                })
                .collect();
            let mut last = 0;
            for step in 0..12 {
                now += random.u64(1..3) * STEP;
                if random.u8(..6) == 0 {
                    let node = random.usize(..count);
                    nodes[node].forget(now);
                }
                let is_old = random.u8(..3) == 0;
                if let Some(token) = attempt(&mut nodes, now, is_old, &mut random) {
                    assert!(token > last, "seed {seed}, step {step}, old {is_old}: {token} after {last}, {nodes:?}");
                    last = token;
                    granted[usize::from(is_old)] += 1;
                }
            }
        }
        assert!(granted.iter().all(|times| *times > 3000), "{granted:?}: too little happened");
    }

    #[test]
    fn a_token_is_the_least_that_a_majority_does_not_exceed() {
        let of = |drawn: &[u64]| {
            let drawn: Vec<_> = drawn.iter().copied().enumerate().collect();
            Token::of(&drawn, 5).map(|token| (token.value, token.is_kept(5)))
        };
        assert_eq!(of(&[7, 7]), None);
        assert_eq!(of(&[7, 7, 7]), Some((7, true)));
        assert_eq!(of(&[7, 9, 7]), Some((9, false)));
        assert_eq!(of(&[7, 9, 7, 7]), Some((7, true)));
        assert_eq!(of(&[7, 9, 7, 9]), Some((9, false)));
        // All have answered: then nothing is ever written back.
        assert_eq!(of(&[1, 2, 3, 4, 5]), Some((3, true)));
        assert_eq!(of(&[9, 1, 9, 1, 9]), Some((9, true)));
    }
}
