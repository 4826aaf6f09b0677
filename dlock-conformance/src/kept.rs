//! Keys that stay taken for some time after their hold has ended.

use dlock_contract::{Attempt, Queue, Released, Validity};

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::modes::permits;
use crate::tested::{SLACK, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("a kept key stays taken for its time", keeps, for_its_time),
    case!("a kept key goes to a waiter at the end of its time", keeps, not_longer),
    case!("a kept key no longer belongs to its owner", keeps, nobodys),
    case!("look at a kept key shows who held it", keeps, shows_note),
    case!("of several permits only the kept one stays taken", keeps_permits, share),
];

async fn for_its_time(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let keep = fixture.short();
    let until = fixture.clock.now().after(keep.saturating_sub(Validity::margin(keep)));
    one.end(&hold, Some(keep), None).await?;
    let next = fixture.claim(&key, fixture.long())?;
    while fixture.clock.now() < until {
        if let Attempt::Acquired(_) = other.ask(&next, Queue::Leave).await? {
            let early = until.since(fixture.clock.now());
            ensure!(early.is_zero(), "a key that must be kept for {keep:?} was granted {early:?} too early");
        }
        pause(10).await;
    }
    Ok(())
}

async fn not_longer(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = Queue::until(fixture.clock.now().after(fixture.long()));
    let wake = other.refused(&waiter, until, hold.validity).await?;
    one.end(&hold, Some(fixture.short()), None).await?;
    let next = other.wait_on(&waiter, Some(wake), fixture.takeover(fixture.short())).await?;
    other.give_back(&next).await?;
    fixture.clean(&key, "after the next owner's release").await
}

async fn nobodys(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.end(&hold, Some(fixture.long()), None).await?;
    one.lost(&hold).await?;
    let released = one.backend.release(&hold).await?;
    ensure!(released == Released::NotOwner, "the release of a kept key returned {released:?}");
    let ended = one.keeps()?.keep(&hold, fixture.short(), None).await?;
    ensure!(ended == Released::NotOwner, "the end of a kept key returned {ended:?}");
    one.backend.abandon(&hold.claim).await?;
    one.refused(&hold.claim, Queue::Leave, hold.validity).await?;
    other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
    Ok(())
}

async fn shows_note(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.end(&hold, Some(fixture.long()), None).await?;
    let note = other.backend.look(&key).await?.note().cloned();
    ensure!(
        note.as_ref() == Some(&hold.claim.note),
        "a key that is kept for {} has the note {note:?}",
        hold.claim.note
    );
    Ok(())
}

async fn share(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let kept = one.take(&fixture.claim_as(permits(2), &key, fixture.long())?).await?;
    one.end(&kept, Some(fixture.long()), None).await?;
    let next = other.take_within(&fixture.claim_as(permits(2), &key, fixture.long())?, SLACK).await?;
    ensure!(next.slot != kept.slot, "a kept slot was granted to another owner");
    other.refused(&fixture.claim_as(permits(2), &key, fixture.long())?, Queue::Leave, next.validity).await?;
    Ok(())
}
