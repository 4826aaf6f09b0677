//! Lock modes, and calls for several keys.

use dlock_sim::{Failure, Granted, History, Rule, Share, Terms, What};

use crate::{DONE, OK, S, TERMS, acts, asks, broken, fails, history};

fn shared(share: Share) -> Terms {
    Terms { share, ..TERMS }
}

/// Two bodies that run beside each other, with their slots. The second one asked while the first one ran.
fn beside(one: (Share, Option<u32>), other: (Share, Option<u32>), token: u64) -> History {
    let begins = |token, slot| What::Begins { holds: vec![Granted { token: Some(token), slot }] };
    history([
        (1, 1, 1, asks(&shared(one.0))),
        (2, 1, 1, begins(7, one.1)),
        (2, 1, 1, acts(12)),
        (3, 2, 2, asks(&shared(other.0))),
        (3, 2, 2, begins(token, other.1)),
        (3, 2, 2, acts(13)),
        (6, 1, 1, DONE),
        (6, 1, 1, OK),
        (9, 2, 2, DONE),
        (9, 2, 2, OK),
    ])
}

#[test]
fn readers_and_permits_may_be_beside_each_other() {
    let (read, write, permit) =
        ((Share::Read, None), (Share::Write, None), |slot| (Share::Permit { of: 2 }, Some(slot)));
    assert_eq!(broken(&beside(read, read, 8)), []);
    assert_eq!(broken(&beside(read, write, 8)), [Rule::OneBeliever]);
    assert_eq!(broken(&beside(write, read, 8)), [Rule::OneBeliever]);
    assert_eq!(broken(&beside(permit(0), permit(1), 8)), []);
    assert_eq!(broken(&beside(permit(0), permit(0), 8)), [Rule::OneBeliever]);
    assert_eq!(broken(&beside(permit(0), permit(2), 8)), [Rule::OneBeliever]);
}

#[test]
fn tokens_are_unique_and_those_of_holds_beside_each_other_come_in_any_order() {
    let read = (Share::Read, None);
    assert_eq!(broken(&beside(read, read, 6)), []);
    assert_eq!(broken(&beside(read, read, 7)), [Rule::TokensRise]);
}

#[test]
fn a_key_conflict_needs_another_mode() {
    let refused = |share| {
        history([
            (1, 1, 1, asks(&shared(Share::Read))),
            (1, 1, 1, fails(Failure::Outage)),
            (2, 1, 2, asks(&shared(share))),
            (2, 1, 2, fails(Failure::KeyConflict)),
        ])
    };
    assert_eq!(broken(&refused(Share::Exclusive)), []);
    assert_eq!(broken(&refused(Share::Write)), [Rule::ErrorKind]);
}

#[test]
fn several_keys_are_taken_in_their_order() {
    let takes = |first, second| {
        let mut takes = history([]);
        takes.add(S, 1, 1, What::Asks { keys: vec![0, 1], terms: TERMS });
        takes.add(2 * S, 1, 1, What::Grants { key: first, token: 7 });
        takes.add(3 * S, 1, 1, What::Grants { key: second, token: 8 });
        takes.add(4 * S, 1, 1, fails(Failure::Outage));
        takes
    };
    assert_eq!(broken(&takes(0, 1)), []);
    assert_eq!(broken(&takes(1, 0)), [Rule::OrderOfKeys]);
}
