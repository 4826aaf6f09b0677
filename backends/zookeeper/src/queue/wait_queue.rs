//! The order of the contenders, from the list of the lock's children.

use super::contender::{Contender, NodeMode};

/// The wait queue of one lock: its contenders in order, and the slots that are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitQueue {
    pub(crate) contenders: Vec<Contender>,
    slots: Vec<u32>,
}

/// The position of a contender in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// It holds the lock.
    First,
    /// Behind this node.
    Behind(String),
    /// All permits are taken. If any holder leaves, the contender may get one.
    PermitsTaken,
    /// Contenders of another lock mode are ahead, and that mode excludes this one.
    Conflict,
    /// It has no node.
    Absent,
    /// The counter of the server is at its end, and numbers there have no order.
    CounterEnded,
}

impl WaitQueue {
    pub(crate) fn of(children: &[String]) -> Self {
        let mut contenders: Vec<_> = children.iter().filter_map(|name| Contender::read(name)).collect();
        contenders.sort_by_key(Contender::rank);
        let slots = children.iter().filter_map(|name| name.strip_prefix(SLOT)?.parse().ok()).collect();
        Self { contenders, slots }
    }

    /// The position of the node with this name.
    pub(crate) fn position(&self, name: &str, mode: NodeMode) -> Position {
        match self.contenders.iter().position(|contender| contender.name == name) {
            Some(at) if !self.contenders[at].is_ordered() => Position::CounterEnded,
            Some(at) => position_behind(&self.contenders[..at], mode),
            None => Position::Absent,
        }
    }

    /// The position that a new node would get.
    pub(crate) fn position_at_end(&self, mode: NodeMode) -> Position {
        position_behind(&self.contenders, mode)
    }

    /// The contenders that hold the lock.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Contender> {
        let holds = |(at, contender): &(usize, &Contender)| {
            position_behind(&self.contenders[..*at], contender.mode) == Position::First
        };
        self.contenders.iter().enumerate().filter(holds).map(|(_, contender)| contender)
    }

    /// Whether all slots of this number of permits are taken.
    pub(crate) fn has_no_slot(&self, limit: u32) -> bool {
        self.slots.len() >= limit as usize && (0..limit).all(|slot| self.slots.contains(&slot))
    }

    /// The slots of permits that are taken.
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots
    }
}

/// The beginning of the name of a slot's node.
const SLOT: &str = "slot-";

/// The name of this slot's node.
pub(crate) fn slot_name(slot: u32) -> String {
    format!("{SLOT}{slot}")
}

fn position_behind(ahead: &[Contender], mode: NodeMode) -> Position {
    let Some(first) = ahead.first() else { return Position::First };
    if !first.mode.mixes_with(mode) {
        return Position::Conflict;
    }
    match mode {
        NodeMode::Permit(limit) => {
            let before = ahead.iter().filter(|contender| contender.mode == mode).count();
            if before < limit as usize { Position::First } else { Position::PermitsTaken }
        }
        NodeMode::Read => match ahead.iter().rfind(|contender| contender.mode != NodeMode::Read) {
            Some(writer) => Position::Behind(writer.name.clone()),
            None => Position::First,
        },
        NodeMode::Exclusive | NodeMode::Write | NodeMode::Alone => match ahead.last() {
            Some(last) => Position::Behind(last.name.clone()),
            None => Position::First,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::LAST_NUMBER;
    use super::*;

    fn queue(names: &[&str]) -> WaitQueue {
        WaitQueue::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn exclusive_locks_queue_by_their_number_alone() {
        let queue = queue(&["zz-lock-0000000001", "aa-lock-0000000003", "mm__lock__0000000002", "stray"]);
        assert_eq!(queue.position("zz-lock-0000000001", NodeMode::Exclusive), Position::First);
        assert_eq!(
            queue.position("mm__lock__0000000002", NodeMode::Alone),
            Position::Behind("zz-lock-0000000001".into())
        );
        assert_eq!(
            queue.position("aa-lock-0000000003", NodeMode::Exclusive),
            Position::Behind("mm__lock__0000000002".into())
        );
        assert_eq!(queue.position("gone-lock-0000000009", NodeMode::Exclusive), Position::Absent);
        assert_eq!(queue.holders().count(), 1);
    }

    #[test]
    fn numbers_at_the_end_of_the_counter_are_no_positions() {
        let (last, ended) = (format!("a-lock-{LAST_NUMBER}"), format!("b-lock-{}", LAST_NUMBER + 1));
        let queue = queue(&[
            &last,
            &ended,
            "c-lock-2147483647",
            "d-lock-2147483647",
            "e-lock--2147483648",
            "f-lock--2147483648",
        ]);
        assert_eq!(queue.position(&last, NodeMode::Exclusive), Position::First);
        for counter_ended in
            [&ended, "c-lock-2147483647", "d-lock-2147483647", "e-lock--2147483648", "f-lock--2147483648"]
        {
            assert_eq!(queue.position(counter_ended, NodeMode::Exclusive), Position::CounterEnded);
        }
    }

    #[test]
    fn readers_queue_behind_writers_and_writers_behind_all() {
        let names = ["a-__READ__0000000001", "b-__WRIT__0000000002", "c-__READ__0000000003", "d-__WRIT__0000000004"];
        let queue = queue(&names);
        assert_eq!(queue.position(names[0], NodeMode::Read), Position::First);
        assert_eq!(queue.position(names[1], NodeMode::Write), Position::Behind(names[0].into()));
        assert_eq!(queue.position(names[2], NodeMode::Read), Position::Behind(names[1].into()));
        assert_eq!(queue.position(names[3], NodeMode::Write), Position::Behind(names[2].into()));
        assert_eq!(queue.position_at_end(NodeMode::Read), Position::Behind(names[3].into()));
    }

    #[test]
    fn only_as_many_contenders_hold_a_permit_as_there_are_permits() {
        let queue = queue(&["a-permit2-0000000001", "b-permit2-0000000002", "c-permit2-0000000003", "slot-1"]);
        let two = NodeMode::Permit(2);
        assert_eq!(queue.position("b-permit2-0000000002", two), Position::First);
        assert_eq!(queue.position("c-permit2-0000000003", two), Position::PermitsTaken);
        assert_eq!(queue.position_at_end(NodeMode::Permit(3)), Position::Conflict);
        assert_eq!((queue.holders().count(), queue.slots()), (2, &[1][..]));
    }

    #[test]
    fn the_first_contender_decides_which_modes_may_join() {
        let read = queue(&["a-__READ__0000000001", "b-lock-0000000002"]);
        assert_eq!(read.position("b-lock-0000000002", NodeMode::Exclusive), Position::Conflict);
        assert_eq!(read.position_at_end(NodeMode::Permit(1)), Position::Conflict);
        // A later contender that will leave does not matter for this one.
        let ours = queue(&["b-lock-0000000002", "a-__READ__0000000003"]);
        assert_eq!(ours.position("b-lock-0000000002", NodeMode::Exclusive), Position::First);
        let kazoo = queue(&["a__lock__0000000001"]);
        assert_eq!(kazoo.position_at_end(NodeMode::Exclusive), Position::Behind("a__lock__0000000001".into()));
        assert_eq!(kazoo.position_at_end(NodeMode::Read), Position::Behind("a__lock__0000000001".into()));
        assert_eq!(kazoo.position_at_end(NodeMode::Permit(2)), Position::Conflict);
    }
}
