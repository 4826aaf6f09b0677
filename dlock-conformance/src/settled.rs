//! Stores where a body works inside of its hold: the end of the hold makes that work final, or undoes it.

use dlock_contract::{ErrorKind, Queue};

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::tested::{SLACK, Tested, ensure};

pub(crate) const CASES: &[Case] = &[
    case!("settled work is final", settles, settled),
    case!("work that was not settled is undone by the release", settles, released),
    case!("work whose hold was ended from outside is refused and undone", settles, refused),
    case!("a hold has work once its body has worked, and not before", settles, has_work),
];

async fn settled(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.work(&hold).await?;
    ensure!(!fixture.is_final(&hold).await?, "work was final before it was settled");
    other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
    one.settle()?.settle(&hold).await?;
    ensure!(fixture.is_final(&hold).await?, "work was settled, and is not final");
    one.give_back(&hold).await?;
    let next = other.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    other.give_back(&next).await
}

async fn released(fixture: &Fixture<'_>) -> Tested {
    let (key, client) = (fixture.key()?, fixture.client().await?);
    let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.work(&hold).await?;
    client.give_back(&hold).await?;
    client.take_within(&fixture.claim(&key, fixture.long())?, SLACK).await?;
    ensure!(!fixture.is_final(&hold).await?, "work that was not settled is final");
    Ok(())
}

async fn refused(fixture: &Fixture<'_>) -> Tested {
    let (key, client) = (fixture.key()?, fixture.client().await?);
    let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
    fixture.work(&hold).await?;
    fixture.evict(&key).await?;
    let settled = client.settle()?.settle(&hold).await;
    let told = settled.map_err(|error| error.kind().clone());
    let is_told = matches!(told, Err(ErrorKind::CommitRefused | ErrorKind::CommitUnknown));
    ensure!(is_told, "work was settled after its hold was ended from outside, and the answer was {told:?}");
    ensure!(!fixture.is_final(&hold).await?, "the work of a hold that was ended from outside is final");
    Ok(())
}

async fn has_work(fixture: &Fixture<'_>) -> Tested {
    let (key, client) = (fixture.key()?, fixture.client().await?);
    let hold = client.take(&fixture.claim(&key, fixture.long())?).await?;
    ensure!(!client.settle()?.has_work(&hold), "a hold in which nobody has worked has work");
    fixture.work(&hold).await?;
    ensure!(client.settle()?.has_work(&hold), "a hold in which its body has worked has no work");
    client.give_back(&hold).await
}
