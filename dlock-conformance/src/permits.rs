//! Permits: up to N holders, each with a number.

use dlock_contract::{Hold, Queue};
use std::collections::BTreeSet;

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::modes::permits;
use crate::tested::{SLACK, Stop, Tested, ensure};

pub(crate) const CASES: &[Case] = &[
    case!("the stated number of permits is granted, and not one more", permits, not_one_more),
    case!("a permit is kept as long as its holder believes", permits, kept),
    case!("a permit has the lowest free slot", permits, lowest_slot),
    case!("only a silent holder's permit and slot come back", permits, silent_holder),
    case!("a claim with another number of permits is a conflict", permits, other_number),
];

fn slot(hold: &Hold) -> Tested<u32> {
    hold.slot.ok_or_else(|| Stop::Failed("a permit has no slot".into()))
}

async fn not_one_more(fixture: &Fixture<'_>) -> Tested {
    const MOST: u32 = 4;
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let mut holds = Vec::new();
    for number in 0..MOST {
        let client = if number % 2 == 0 { &one } else { &other };
        holds.push(client.take(&fixture.claim_as(permits(MOST), &key, fixture.long())?).await?);
    }
    let slots = holds.iter().map(slot).collect::<Tested<BTreeSet<_>>>()?;
    ensure!(slots.into_iter().eq(0..MOST), "{MOST} permits are held, but their slots are not 0 to {}", MOST - 1);
    let next = fixture.claim_as(permits(MOST), &key, fixture.long())?;
    for (client, hold) in [&one, &other].into_iter().zip(&holds) {
        client.refused(&next, Queue::Leave, hold.validity).await?;
    }
    for hold in &holds {
        one.renew(hold, hold.validity).await?;
    }
    if let Some(first) = holds.first() {
        one.give_back(first).await?;
    }
    other.take_within(&next, SLACK).await?;
    Ok(())
}

async fn kept(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let first = one.take(&fixture.claim_as(permits(2), &key, fixture.long())?).await?;
    let second = other.take(&fixture.claim_as(permits(2), &key, fixture.long())?).await?;
    for (client, hold) in [(&one, &first), (&other, &second)] {
        client.kept_as_believed(hold).await?;
        client.give_back(hold).await?;
    }
    Ok(())
}

async fn lowest_slot(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let mut holds = Vec::new();
    for expected in 0..3 {
        let hold = one.take(&fixture.claim_as(permits(3), &key, fixture.long())?).await?;
        let slot = slot(&hold)?;
        ensure!(slot == expected, "slot {slot} was granted while {expected} was free");
        holds.push(hold);
    }
    for freed in [vec![1], vec![2, 0], vec![0, 1, 2]] {
        for at in &freed {
            if let Some(hold) = holds.get(*at) {
                one.give_back(hold).await?;
            }
        }
        let mut expected = freed;
        expected.sort_unstable();
        for at in expected {
            let hold = one.take(&fixture.claim_as(permits(3), &key, fixture.long())?).await?;
            let slot = slot(&hold)?;
            ensure!(u32::try_from(at) == Ok(slot), "slot {slot} was granted while {at} was free");
            if let Some(former) = holds.get_mut(at) {
                *former = hold;
            }
        }
    }
    for hold in &holds {
        one.give_back(hold).await?;
    }
    Ok(())
}

async fn silent_holder(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let silent = one.take(&fixture.claim_as(permits(2), &key, fixture.short())?).await?;
    let alive = other.take(&fixture.claim_as(permits(2), &key, fixture.long())?).await?;
    let over = fixture.surely_over(silent.validity);
    let mut validity = alive.validity;
    while fixture.clock.now() < over {
        tokio::time::sleep(fixture.short() / 3).await;
        validity = other.renew(&alive, validity).await?;
    }
    one.lost(&silent).await?;
    let next = one.take_within(&fixture.claim_as(permits(2), &key, fixture.long())?, SLACK).await?;
    let (freed, given) = (slot(&silent)?, slot(&next)?);
    ensure!(freed == given, "only slot {freed} was free, and {given} was granted");
    other.refused(&fixture.claim_as(permits(2), &key, fixture.long())?, Queue::Leave, validity).await?;
    other.renew(&alive, validity).await?;
    Ok(())
}

async fn other_number(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    for (held, asked) in [(2, 3), (3, 2)] {
        let hold = one.take(&fixture.claim_as(permits(held), &key, fixture.long())?).await?;
        other.conflict(&fixture.claim_as(permits(asked), &key, fixture.long())?, Queue::Leave, &hold).await?;
        one.give_back(&hold).await?;
    }
    Ok(())
}
