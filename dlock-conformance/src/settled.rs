//! Stores where a body works inside of its hold: the end of the hold makes that work final, or undoes it.

use dlock_contract::{ErrorKind, Queue};

use crate::bench::{Bench, SLACK, Tested, case, ensure};
use crate::case::Case;

pub(crate) const CASES: &[Case] = &[
    case!("settled work is final", settles, settled),
    case!("work that was not settled is undone by the release", settles, released),
    case!("work whose hold was ended from outside is refused and undone", settles, refused),
    case!("a hold has work once its body has worked, and not before", settles, has_work),
];

async fn settled(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let hold = one.take(&bench.claim(&key, bench.long())?).await?;
    bench.work(&hold).await?;
    ensure!(!bench.is_final(&hold).await?, "work was final before it was settled");
    other.refused(&bench.claim(&key, bench.long())?, Queue::Leave, hold.validity).await?;
    one.settle()?.settle(&hold).await?;
    ensure!(bench.is_final(&hold).await?, "work was settled, and is not final");
    one.give_back(&hold).await?;
    let next = other.take_within(&bench.claim(&key, bench.long())?, SLACK).await?;
    other.give_back(&next).await?;
    Ok(())
}

async fn released(bench: &Bench<'_>) -> Tested {
    let (key, client) = (bench.key()?, bench.client().await?);
    let hold = client.take(&bench.claim(&key, bench.long())?).await?;
    bench.work(&hold).await?;
    client.give_back(&hold).await?;
    client.take_within(&bench.claim(&key, bench.long())?, SLACK).await?;
    ensure!(!bench.is_final(&hold).await?, "work that was not settled is final");
    Ok(())
}

async fn refused(bench: &Bench<'_>) -> Tested {
    let (key, client) = (bench.key()?, bench.client().await?);
    let hold = client.take(&bench.claim(&key, bench.long())?).await?;
    bench.work(&hold).await?;
    bench.evict(&key).await?;
    let settled = client.settle()?.settle(&hold).await;
    let told = settled.map_err(|error| error.kind().clone());
    let is_told = matches!(told, Err(ErrorKind::CommitRefused | ErrorKind::CommitUnknown));
    ensure!(is_told, "work was settled after its hold was ended from outside, and the answer was {told:?}");
    ensure!(!bench.is_final(&hold).await?, "the work of a hold that was ended from outside is final");
    Ok(())
}

async fn has_work(bench: &Bench<'_>) -> Tested {
    let (key, client) = (bench.key()?, bench.client().await?);
    let hold = client.take(&bench.claim(&key, bench.long())?).await?;
    ensure!(!client.settle()?.has_work(&hold), "a hold in which nobody has worked has work");
    bench.work(&hold).await?;
    ensure!(client.settle()?.has_work(&hold), "a hold in which its body has worked has no work");
    client.give_back(&hold).await?;
    Ok(())
}
