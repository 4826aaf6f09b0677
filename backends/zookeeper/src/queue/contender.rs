//! The names of the nodes in a queue: dlock's own, and those of Curator, kazoo and go-zookeeper.
//!
//! A name ends in ten digits, which the server counts for each parent. The word before the digits is the lock mode. The
//! text before the word identifies the contender.

use dlock_contract::{Mode, Owner};

/// The client whose form of names dlock writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `_c_<uuid>-lock-`, as Curator.
    Curator,
    /// `<32 hex digits>__lock__`, as kazoo.
    Kazoo,
}

/// The lock mode of a contender, by the name of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeMode {
    Exclusive,
    Read,
    Write,
    /// One of this many permits.
    Permit(u32),
    /// Exclusive lock or writer: kazoo has one name for both.
    Alone,
}

impl NodeMode {
    pub(crate) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Read => Self::Read,
            Mode::Write => Self::Write,
            Mode::Permits(limit) => Self::Permit(limit.get()),
        }
    }

    /// Whether both may be in one queue.
    pub(crate) fn mixes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Permit(one), Self::Permit(other)) => one == other,
            (Self::Permit(_), _) | (_, Self::Permit(_)) => false,
            (Self::Alone, _) | (_, Self::Alone) => true,
            (one, other) => (one == Self::Exclusive) == (other == Self::Exclusive),
        }
    }
}

impl Layout {
    /// The name of a new node, to which the server adds its digits.
    pub(crate) fn prefix(self, owner: &Owner, mode: NodeMode) -> String {
        let hex = owner.to_hex();
        match (self, mode) {
            (_, NodeMode::Permit(limit)) => format!("_c_{}-permit{limit}-", uuid(&hex)),
            (Self::Curator, NodeMode::Read) => format!("_c_{}-__READ__", uuid(&hex)),
            (Self::Curator, NodeMode::Write) => format!("_c_{}-__WRIT__", uuid(&hex)),
            (Self::Curator, _) => format!("_c_{}-lock-", uuid(&hex)),
            (Self::Kazoo, NodeMode::Read) => format!("{hex}__rlock__"),
            // Kazoo looks only at the end of a name. The `w` or `x` before it marks our writers and our exclusive
            // locks.
            (Self::Kazoo, NodeMode::Write) => format!("{hex}-w__lock__"),
            (Self::Kazoo, _) => format!("{hex}-x__lock__"),
        }
    }
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn uuid(hex: &str) -> String {
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The last number with which a node may hold the lock. The counter of the server stops at [`i32::MAX`]: later nodes get that
/// number, and nodes that are made at the same moment get negative ones, again and again the same. So the numbers end before,
/// by more than the number of nodes that can be under way.
pub(crate) const LAST_NUMBER: i32 = i32::MAX - 1_000_000;

/// One node of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) mode: NodeMode,
    /// The number that the server counted.
    pub(crate) sequence: i32,
    /// The random part of the name. If dlock wrote it, this is the owner.
    pub(crate) owner: Option<Owner>,
}

impl Contender {
    /// Reads the name of a node. `None`: the node is not in the queue.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let (head, mode, digits) = Self::parts(name)?;
        // If the counter has overflowed, a minus sign takes the place of a digit.
        let sequence = digits.parse().ok().filter(|_| digits.len() >= 10 && !digits.starts_with('+'))?;
        Some(Self { name: name.to_owned(), mode, sequence, owner: owner(head) })
    }

    fn parts(name: &str) -> Option<(&str, NodeMode, &str)> {
        const WORDS: [(&str, NodeMode); 5] = [
            ("-x__lock__", NodeMode::Exclusive),
            ("-w__lock__", NodeMode::Write),
            ("__READ__", NodeMode::Read),
            ("__WRIT__", NodeMode::Write),
            ("__rlock__", NodeMode::Read),
        ];
        for (word, mode) in WORDS {
            if let Some((head, digits)) = name.rsplit_once(word) {
                return Some((head, mode, digits));
            }
        }
        if let Some((head, digits)) = name.rsplit_once("__lock__") {
            return Some((head, NodeMode::Alone, digits));
        }
        if let Some((head, rest)) = name.rsplit_once("-permit") {
            let (limit, digits) = rest.split_once('-')?;
            return Some((head, NodeMode::Permit(limit.parse().ok()?), digits));
        }
        let (head, digits) = name.rsplit_once("lock-")?;
        Some((head, NodeMode::Exclusive, digits))
    }

    /// The place in the queue. Behind its largest number the server gives negative ones.
    pub(crate) fn rank(&self) -> u32 {
        self.sequence.cast_unsigned()
    }

    /// Whether the number has an order among all numbers that the server gives.
    pub(crate) fn is_ordered(&self) -> bool {
        (0..=LAST_NUMBER).contains(&self.sequence)
    }
}

fn owner(head: &str) -> Option<Owner> {
    let own = head.strip_prefix("_c_").unwrap_or(head);
    let hex: String = own.chars().filter(|c| *c != '-').collect();
    let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(&hex, 16).ok().filter(|_| is_hex).map(|bits| Owner::from_bytes(bits.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: [u8; 16] = [0xa5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    #[test]
    fn the_names_are_frozen_and_read_back() {
        let owner = Owner::from_bytes(OWNER);
        for (layout, mode, name) in [
            (Layout::Curator, NodeMode::Exclusive, "_c_a5010203-0405-0607-0809-0a0b0c0d0e0f-lock-"),
            (Layout::Curator, NodeMode::Read, "_c_a5010203-0405-0607-0809-0a0b0c0d0e0f-__READ__"),
            (Layout::Curator, NodeMode::Write, "_c_a5010203-0405-0607-0809-0a0b0c0d0e0f-__WRIT__"),
            (Layout::Curator, NodeMode::Permit(3), "_c_a5010203-0405-0607-0809-0a0b0c0d0e0f-permit3-"),
            (Layout::Kazoo, NodeMode::Exclusive, "a50102030405060708090a0b0c0d0e0f-x__lock__"),
            (Layout::Kazoo, NodeMode::Read, "a50102030405060708090a0b0c0d0e0f__rlock__"),
            (Layout::Kazoo, NodeMode::Write, "a50102030405060708090a0b0c0d0e0f-w__lock__"),
        ] {
            assert_eq!(layout.prefix(&owner, mode), name);
            let read = Contender::read(&format!("{name}0000000042"));
            assert_eq!(read.as_ref().map(|read| (read.mode, read.sequence)), Some((mode, 42)), "{name}");
            // The mark of a kazoo node is part of no owner.
            assert_eq!(read.and_then(|read| read.owner), Some(owner), "{name}");
        }
    }

    #[test]
    fn other_tools_nodes_are_read() {
        for (name, mode) in [
            ("_c_9866788cb987091f8fed485581bd39b6-lock-0000000007", NodeMode::Exclusive),
            ("lock-0000000007", NodeMode::Exclusive),
            ("9866788cb987091f8fed485581bd39b6__lock__0000000007", NodeMode::Alone),
            ("9866788cb987091f8fed485581bd39b6__rlock__0000000007", NodeMode::Read),
        ] {
            let read = Contender::read(name).unwrap();
            assert_eq!((read.mode, read.sequence), (mode, 7), "{name}");
        }
        for name in
            ["stray", "slot-0", "leases", "locks", "lock-7", "lock-+000000007", "_c_x-latch-0000000001", "lock-"]
        {
            assert_eq!(Contender::read(name), None, "{name}");
        }
    }

    #[test]
    fn the_order_survives_the_end_of_the_counter() {
        let at = |digits: &str| Contender::read(&format!("lock-{digits}")).unwrap();
        for (one, other) in [("0000000009", "0000000010"), ("2147483647", "-2147483648")] {
            assert!(at(one).rank() < at(other).rank());
        }
    }
}
