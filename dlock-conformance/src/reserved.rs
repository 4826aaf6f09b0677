//! Cases for stores that reserve tokens for callers that get a hold passed on.

use std::time::Duration;

use dlock_contract::{Hold, Queue, Reservation, Reserved, Validity};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::tested::{Stop, Tested, ensure};

pub(crate) const CASES: &[Case] = &[
    case!("reserved tokens are above the hold's token and below the next holder's", cohorts, above),
    case!("a reservation of tokens prolongs the lock in the store", cohorts, prolongs),
    case!("with a reservation of tokens the lock is kept as long as its holder believes", cohorts, kept),
    case!("a reservation of tokens after the hold's end is Lost and creates nothing", cohorts, after_end),
    case!("no tokens are reserved while others wait, unless the claim asks for it", cohorts_in_line, awaited),
];

const TOKENS: u32 = 5;

async fn reserve(client: &Client, hold: &Hold) -> Tested<(u64, Validity)> {
    match client.tokens()?.reserve(hold, Reservation::new(TOKENS).even_if_awaited(true)).await? {
        Reserved::Tokens { first, validity } => Ok((first, validity)),
        other => Err(Stop::Failed(format!("a reservation for a held lock returned {other:?}"))),
    }
}

async fn above(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let (first, _) = reserve(&one, &hold).await?;
    let own = fixture.token(&hold)?;
    ensure!(first > own, "the hold's token is {own}, and {first} was reserved");
    let (second, _) = reserve(&one, &hold).await?;
    ensure!(second >= first + u64::from(TOKENS), "{TOKENS} from {first} were reserved, and then from {second}");
    one.give_back(&hold).await?;
    let next = fixture.token(&other.take(&fixture.claim(&key, fixture.long())?).await?)?;
    let last = second + u64::from(TOKENS) - 1;
    ensure!(next > last, "{second} to {last} were reserved, and the next holder has {next}");
    Ok(())
}

async fn prolongs(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.short())?).await?;
    let next = fixture.claim(&key, fixture.short())?;
    let mut validity = hold.validity;
    for _ in 0..5 {
        tokio::time::sleep(fixture.short() / 3).await;
        one.in_time(validity)?;
        let answer = reserve(&one, &hold).await;
        if answer.is_err() {
            // On a busy machine the lease may have ended during the request.
            one.in_time(validity)?;
        }
        validity = answer?.1;
        other.refused(&next, Queue::Leave, validity).await?;
    }
    one.give_back(&hold).await
}

async fn kept(fixture: &Fixture<'_>) -> Tested {
    let (key, one) = (fixture.key()?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let (_, validity) = reserve(&one, &hold).await?;
    one.lasts(&hold, validity).await?;
    one.give_back(&hold).await
}

async fn after_end(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.give_back(&hold).await?;
    let reservation = Reservation::new(TOKENS).even_if_awaited(true);
    for holder in [None, Some(fixture.claim(&key, fixture.long())?)] {
        let next_holder = match &holder {
            Some(claim) => Some(other.take(claim).await?),
            None => None,
        };
        let answer = one.tokens()?.reserve(&hold, reservation).await?;
        ensure!(answer == Reserved::Lost, "a reservation after the release returned {answer:?}");
        if let Some(next_holder) = next_holder {
            other.renew(&next_holder, next_holder.validity).await?;
            other.give_back(&next_holder).await?;
        }
        fixture.clean(&key, "after a reservation for a hold that was over").await?;
    }
    Ok(())
}

async fn awaited(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let reservation = Reservation::new(TOKENS);
    let alone = one.tokens()?.reserve(&hold, reservation).await?;
    ensure!(matches!(alone, Reserved::Tokens { .. }), "a reservation without other waiters returned {alone:?}");
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(Duration::from_secs(60));
    let wake = other.stand(&waiter, until, hold.validity).await?;
    let answer = one.tokens()?.reserve(&hold, reservation).await?;
    ensure!(answer == Reserved::Awaited, "a reservation with another waiter returned {answer:?}");
    reserve(&one, &hold).await?;
    one.give_back(&hold).await?;
    let next = other.wait_on(&waiter, Some(wake), fixture.long()).await?;
    other.give_back(&next).await
}
