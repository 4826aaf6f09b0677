//! Promises of all modes: families do not mix, several holders are shown in order, and nothing is left.

use std::num::NonZeroU32;

use dlock_contract::{Hold, Mode, Queue};

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::tested::{SLACK, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a mode of another family is a conflict, and leaves nothing", modes, other_family),
    case!("a lock of any mode leaves nothing in the store", modes, leaves_nothing),
    case!("of several holders look shows the first one first", modes, first_is_shown),
    case!("an owner that asks again for a shared lock has one hold", modes, asked_again),
];

pub(crate) fn permits(most: u32) -> Mode {
    Mode::Permits(NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN))
}

/// A claim of each mode that the store supports.
pub(crate) fn all_modes(fixture: &Fixture<'_>) -> Vec<Mode> {
    let mut modes = vec![Mode::Exclusive];
    if fixture.profile.read_write {
        modes.extend([Mode::Read, Mode::Write]);
    }
    if fixture.profile.permits {
        modes.push(permits(2));
    }
    modes
}

fn shared_modes(fixture: &Fixture<'_>) -> impl Iterator<Item = Mode> {
    all_modes(fixture).into_iter().filter(|mode| mode.is_shared())
}

async fn other_family(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    for held in all_modes(fixture) {
        for asked in all_modes(fixture).into_iter().filter(|asked| !asked.mixes_with(held)) {
            let key = fixture.key()?;
            let hold = one.take(&fixture.claim_as(held, &key, fixture.long())?).await?;
            let before = fixture.leftovers(&key).await?.len();
            let until = Queue::until(fixture.clock.now().after(fixture.long()));
            for queue in [Queue::Leave, until] {
                other.conflict(&fixture.claim_as(asked, &key, fixture.long())?, queue, &hold).await?;
            }
            let found = fixture.leftovers(&key).await?;
            ensure!(found.len() == before, "after a conflict, the store has {}", found.join(", "));
            one.give_back(&hold).await?;
            // Now the key belongs to no family.
            let next = other.take(&fixture.claim_as(asked, &key, fixture.long())?).await?;
            other.give_back(&next).await?;
        }
    }
    Ok(())
}

async fn leaves_nothing(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    for mode in all_modes(fixture) {
        let key = fixture.key()?;
        let mut holds = vec![one.take(&fixture.claim_as(mode, &key, fixture.long())?).await?];
        ensure!(!fixture.leftovers(&key).await?.is_empty(), "the Store shows nothing while {mode:?} is held");
        if mode.is_shared() {
            holds.push(other.take(&fixture.claim_as(mode, &key, fixture.long())?).await?);
        }
        // A waiter that leaves.
        let waits = if mode == Mode::Read { Mode::Write } else { mode };
        let waiter = fixture.claim_as(waits, &key, fixture.long())?;
        let until = Queue::until(fixture.clock.now().after(fixture.long()));
        if let Some(hold) = holds.first() {
            drop(other.refused(&waiter, until, hold.validity).await?);
        }
        other.backend.abandon(&waiter).await?;
        for hold in &holds {
            one.give_back(hold).await?;
        }
        // A closed connection may still be visible for a moment.
        let end = fixture.clock.now().after(SLACK);
        while !fixture.leftovers(&key).await?.is_empty() && fixture.clock.now() < end {
            pause(50).await;
        }
        fixture.clean(&key, &format!("after {mode:?} was released")).await?;
    }
    Ok(())
}

async fn first_is_shown(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    for mode in shared_modes(fixture) {
        let key = fixture.key()?;
        let mut holds: Vec<Hold> = Vec::new();
        for _ in 0..2 {
            holds.push(one.take(&fixture.claim_as(mode, &key, fixture.long())?).await?);
            // If the store orders holders by its clock, the clock must have advanced.
            pause(5).await;
        }
        for hold in &holds {
            one.renew(hold, hold.validity).await?;
            let note = other.backend.look(&key).await?.note().cloned();
            ensure!(
                note.as_ref() == Some(&hold.claim.note),
                "the first holder is {}, and look shows {note:?} ({mode:?})",
                hold.claim.note
            );
            one.give_back(hold).await?;
        }
        let note = other.backend.look(&key).await?.note().cloned();
        ensure!(note.is_none(), "all holders have released, and look shows {note:?} ({mode:?})");
    }
    Ok(())
}

async fn asked_again(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    for mode in shared_modes(fixture) {
        let key = fixture.key()?;
        let claim = fixture.claim_as(mode, &key, fixture.long())?;
        // The reply to the first attempt is lost.
        let lost = one.take(&claim).await?;
        let hold = one.take(&claim).await?;
        ensure!(hold.slot == lost.slot, "a repeated request changed the slot from {:?} to {:?}", lost.slot, hold.slot);
        ensure!(
            hold.token >= lost.token,
            "a repeated request lowered the token from {:?} to {:?}",
            lost.token,
            hold.token
        );
        one.give_back(&hold).await?;
        // A second hold would still be there.
        let exclusive = if mode == Mode::Read { vec![Mode::Write] } else { vec![mode, mode] };
        for mode in exclusive {
            other.take(&fixture.claim_as(mode, &key, fixture.long())?).await?;
        }
    }
    Ok(())
}
