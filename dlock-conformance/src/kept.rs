//! Keys that stay taken for some time after their hold has ended.

use dlock_contract::engine::margin;
use dlock_contract::{Attempt, Queue, Released};

use crate::bench::{Bench, SLACK, Tested, case, ensure, pause};
use crate::case::Case;
use crate::modes::permits;

pub(crate) const CASES: &[Case] = &[
    case!("a kept key stays taken for its time", keeps, for_its_time),
    case!("a kept key goes to a waiter at the end of its time", keeps, not_longer),
    case!("a kept key no longer belongs to its owner", keeps, nobodys),
    case!("look at a kept key shows who held it", keeps, shows_note),
    case!("of several permits only the kept one stays taken", keeps_permits, share),
];

async fn for_its_time(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    let keep = bench.short();
    let until = bench.clock.now().after(keep.saturating_sub(margin(keep)));
    one.end(&hold, Some(keep), None).await?;
    let next = bench.claim(&key, bench.long())?;
    while bench.clock.now() < until {
        if let Attempt::Acquired(_) = other.ask(&next, Queue::Leave).await? {
            let early = until.since(bench.clock.now());
            ensure!(early.is_zero(), "a key that must be kept for {keep:?} was granted {early:?} too early");
        }
        pause(10).await;
    }
    Ok(())
}

async fn not_longer(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    let waiter = bench.claim(&key, bench.long())?;
    let until = Queue::until(bench.clock.now().after(bench.long()));
    let wake = other.refused(&waiter, until, hold.validity).await?;
    one.end(&hold, Some(bench.short()), None).await?;
    let next = other.wait_on(&waiter, Some(wake), bench.takeover(bench.short())).await?;
    other.give_back(&next).await?;
    bench.clean(&key, "after the next owner's release").await
}

async fn nobodys(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&hold, Some(bench.long()), None).await?;
    one.lost(&hold).await?;
    let released = one.give_back(&hold).await?;
    ensure!(released == Released::NotOwner, "the release of a kept key returned {released:?}");
    let ended = one.keeps()?.keep(&hold, bench.short(), None).await?;
    ensure!(ended == Released::NotOwner, "the end of a kept key returned {ended:?}");
    one.backend.abandon(&hold.claim).await?;
    one.refused(&hold.claim, Queue::Leave, hold.validity).await?;
    other.refused(&bench.claim(&key, bench.long())?, Queue::Leave, hold.validity).await?;
    Ok(())
}

async fn shows_note(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    one.end(&hold, Some(bench.long()), None).await?;
    let note = other.backend.look(&key).await?.note().cloned();
    ensure!(
        note.as_ref() == Some(&hold.claim.note),
        "a key that is kept for {} has the note {note:?}",
        hold.claim.note
    );
    Ok(())
}

async fn share(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let kept = one.take(&bench.claim_as(permits(2), &key, bench.long())?).await?;
    one.end(&kept, Some(bench.long()), None).await?;
    let next = other.take_within(&bench.claim_as(permits(2), &key, bench.long())?, SLACK).await?;
    ensure!(next.slot != kept.slot, "a kept slot was granted to another owner");
    other.refused(&bench.claim_as(permits(2), &key, bench.long())?, Queue::Leave, next.validity).await?;
    Ok(())
}
