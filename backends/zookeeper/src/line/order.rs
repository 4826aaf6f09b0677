//! Who stands where in a line, as a list of the children tells it.

use super::contender::{Contender, Kind};

/// The line of one lock: its contenders in their order, and the other children of its node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) contenders: Vec<Contender>,
    slots: Vec<u32>,
}

/// Where a contender stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It holds the lock.
    First,
    /// Behind this node.
    Behind(String),
    /// Behind so many that any of them may let it in.
    Crowd,
    /// Behind others that want another kind of lock.
    Conflict,
    /// It has no node.
    Outside,
    /// Its number is the last one of the counter, which the server gives again to all who come later.
    Uncounted,
}

impl Line {
    pub(crate) fn of(children: &[String]) -> Self {
        let mut contenders: Vec<_> = children.iter().filter_map(|name| Contender::read(name)).collect();
        // By the distance from one of them, which is a total order also for numbers that no server has counted: a sort by
        // an order that goes round may panic.
        let one = contenders.first().map_or(0, |contender| contender.sequence);
        contenders.sort_by_key(|contender| contender.distance(one));
        let slots = children.iter().filter_map(|name| name.strip_prefix(SLOT)?.parse().ok()).collect();
        Self { contenders, slots }
    }

    /// Where the node of this name stands.
    pub(crate) fn sight(&self, name: &str, kind: Kind) -> Sight {
        match self.contenders.iter().position(|contender| contender.name == name) {
            Some(place) if self.contenders[place].sequence == i32::MAX => Sight::Uncounted,
            Some(place) => behind(&self.contenders[..place], kind),
            None => Sight::Outside,
        }
    }

    /// Where a node that comes now would stand.
    pub(crate) fn at_the_end(&self, kind: Kind) -> Sight {
        behind(&self.contenders, kind)
    }

    /// Those who hold the lock.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Contender> {
        let holds = |(place, contender): &(usize, &Contender)| {
            behind(&self.contenders[..*place], contender.kind) == Sight::First
        };
        self.contenders.iter().enumerate().filter(holds).map(|(_, contender)| contender)
    }

    /// The numbers of permits that are taken.
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots
    }
}

/// The beginning of the name of a node that takes the number of a permit.
const SLOT: &str = "slot-";

/// The name of the node that takes this number.
pub(crate) fn slot_name(slot: u32) -> String {
    format!("{SLOT}{slot}")
}

fn behind(ahead: &[Contender], kind: Kind) -> Sight {
    let Some(first) = ahead.first() else { return Sight::First };
    if !first.kind.mixes_with(kind) {
        return Sight::Conflict;
    }
    match kind {
        Kind::Permit(limit) => {
            let before = ahead.iter().filter(|contender| contender.kind == kind).count();
            if before < limit as usize { Sight::First } else { Sight::Crowd }
        }
        Kind::Read => match ahead.iter().rfind(|contender| contender.kind != Kind::Read) {
            Some(writer) => Sight::Behind(writer.name.clone()),
            None => Sight::First,
        },
        Kind::Exclusive | Kind::Write | Kind::Alone => match ahead.last() {
            Some(last) => Sight::Behind(last.name.clone()),
            None => Sight::First,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(names: &[&str]) -> Line {
        Line::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn locks_stand_behind_each_other_by_their_number_alone() {
        let line = line(&["zz-lock-0000000001", "aa-lock-0000000003", "mm__lock__0000000002", "stray"]);
        assert_eq!(line.sight("zz-lock-0000000001", Kind::Exclusive), Sight::First);
        assert_eq!(line.sight("mm__lock__0000000002", Kind::Alone), Sight::Behind("zz-lock-0000000001".into()));
        assert_eq!(line.sight("aa-lock-0000000003", Kind::Exclusive), Sight::Behind("mm__lock__0000000002".into()));
        assert_eq!(line.sight("gone-lock-0000000009", Kind::Exclusive), Sight::Outside);
        assert_eq!(line.holders().count(), 1);
    }

    #[test]
    fn numbers_that_no_server_has_counted_are_put_into_some_order() {
        let names: Vec<_> = (0..200_i64).map(|at| format!("lock-{:010}", (at * 1_500_000_001) as i32)).collect();
        assert_eq!(Line::of(&names).contenders.len(), 200);
        assert_eq!(Line::of(&names).holders().count(), 1);
    }

    #[test]
    fn the_last_number_is_no_place() {
        let line = line(&["a-lock-2147483646", "b-lock-2147483647", "c-lock-2147483647"]);
        assert_eq!(line.sight("a-lock-2147483646", Kind::Exclusive), Sight::First);
        for uncounted in ["b-lock-2147483647", "c-lock-2147483647"] {
            assert_eq!(line.sight(uncounted, Kind::Exclusive), Sight::Uncounted);
        }
    }

    #[test]
    fn readers_stand_behind_writers_and_writers_behind_all() {
        let names = ["a-__READ__0000000001", "b-__WRIT__0000000002", "c-__READ__0000000003", "d-__WRIT__0000000004"];
        let line = line(&names);
        assert_eq!(line.sight(names[0], Kind::Read), Sight::First);
        assert_eq!(line.sight(names[1], Kind::Write), Sight::Behind(names[0].into()));
        assert_eq!(line.sight(names[2], Kind::Read), Sight::Behind(names[1].into()));
        assert_eq!(line.sight(names[3], Kind::Write), Sight::Behind(names[2].into()));
        assert_eq!(line.at_the_end(Kind::Read), Sight::Behind(names[3].into()));
    }

    #[test]
    fn permits_are_held_by_so_many() {
        let line = line(&["a-permit2-0000000001", "b-permit2-0000000002", "c-permit2-0000000003", "slot-1"]);
        let two = Kind::Permit(2);
        assert_eq!(line.sight("b-permit2-0000000002", two), Sight::First);
        assert_eq!(line.sight("c-permit2-0000000003", two), Sight::Crowd);
        assert_eq!(line.at_the_end(Kind::Permit(3)), Sight::Conflict);
        assert_eq!((line.holders().count(), line.slots()), (2, &[1][..]));
    }

    #[test]
    fn who_stands_first_says_which_family_it_is() {
        let read = line(&["a-__READ__0000000001", "b-lock-0000000002"]);
        assert_eq!(read.sight("b-lock-0000000002", Kind::Exclusive), Sight::Conflict);
        assert_eq!(read.at_the_end(Kind::Permit(1)), Sight::Conflict);
        // Who came after us and will leave is nothing to us.
        let ours = line(&["b-lock-0000000002", "a-__READ__0000000003"]);
        assert_eq!(ours.sight("b-lock-0000000002", Kind::Exclusive), Sight::First);
        let kazoo = line(&["a__lock__0000000001"]);
        assert_eq!(kazoo.at_the_end(Kind::Exclusive), Sight::Behind("a__lock__0000000001".into()));
        assert_eq!(kazoo.at_the_end(Kind::Read), Sight::Behind("a__lock__0000000001".into()));
        assert_eq!(kazoo.at_the_end(Kind::Permit(2)), Sight::Conflict);
    }
}
