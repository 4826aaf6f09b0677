//! Read and write locks: many readers hold together, a writer holds alone.

use std::time::Duration;

use dlock_contract::{Attempt, Mode, Queue};

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::tested::{SLACK, Stop, Tested};

pub(crate) const CASES: &[Case] = &[
    case!("readers hold a lock together", readers, together),
    case!("a reader's hold is kept as long as its holder believes", readers, kept),
    case!("a writer holds a lock alone", readers, alone),
    case!("a reader does not overtake a writer that waits", readers_in_order, overtaking),
    case!("a writer that gave up keeps no reader out", readers, gave_up),
    case!("a silent reader's hold ends, and no other reader's", readers, silent_reader),
    case!("the end of one reader leaves the others alone", readers, one_ends),
];

async fn together(fixture: &Fixture<'_>) -> Tested {
    let key = fixture.key()?;
    let mut readers = Vec::new();
    for _ in 0..5 {
        let client = fixture.client().await?;
        let hold = client.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
        readers.push((client, hold));
    }
    for (client, hold) in &readers {
        client.renew(hold, hold.validity).await?;
        client.give_back(hold).await?;
    }
    Ok(())
}

async fn kept(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let first = one.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    let second = other.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    for (client, hold) in [(&one, &first), (&other, &second)] {
        client.kept_as_believed(hold).await?;
        client.give_back(hold).await?;
    }
    Ok(())
}

async fn alone(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    for (held, asked) in [(Mode::Read, Mode::Write), (Mode::Write, Mode::Read), (Mode::Write, Mode::Write)] {
        let hold = one.take(&fixture.claim_as(held, &key, fixture.long())?).await?;
        let next = fixture.claim_as(asked, &key, fixture.long())?;
        one.refused(&next, Queue::Leave, hold.validity).await?;
        other.refused(&next, Queue::Leave, hold.validity).await?;
        one.give_back(&hold).await?;
        let hold = other.take_within(&next, SLACK).await?;
        other.give_back(&hold).await?;
    }
    Ok(())
}

async fn overtaking(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let reader = one.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    let writer = fixture.claim_as(Mode::Write, &key, fixture.long())?;
    let until = fixture.clock.now().after(fixture.long());
    let stands = fixture.clock.now();
    let wake = other.stand(&writer, until, reader.validity).await?;
    let late = fixture.claim_as(Mode::Read, &key, fixture.long())?;
    for client in [&one, &other] {
        if let Attempt::Acquired(_) = client.ask(&late, Queue::Leave).await? {
            // The place of a waiter that was silent for some seconds may have ended.
            let is_late = fixture.clock.now() >= stands.after(Duration::from_secs(2));
            let overtaken = || Stop::Failed("a reader got the lock before a writer that waited longer".into());
            return Err(if is_late { Stop::Late } else { overtaken() });
        }
    }
    one.give_back(&reader).await?;
    let hold = other.wait_on(&writer, Some(wake), SLACK * 2).await?;
    other.give_back(&hold).await?;
    one.take_within(&late, SLACK).await?;
    Ok(())
}

async fn gave_up(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let reader = one.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    let writer = fixture.claim_as(Mode::Write, &key, fixture.long())?;
    let until = Queue::until(fixture.clock.now().after(fixture.long()));
    drop(other.refused(&writer, until, reader.validity).await?);
    other.backend.abandon(&writer).await?;
    let next = one.take_within(&fixture.claim_as(Mode::Read, &key, fixture.long())?, SLACK).await?;
    one.give_back(&next).await?;
    one.give_back(&reader).await
}

async fn silent_reader(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let silent = one.take(&fixture.claim_as(Mode::Read, &key, fixture.short())?).await?;
    let alive = other.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    let writer = fixture.claim_as(Mode::Write, &key, fixture.long())?;
    let over = fixture.surely_over(silent.validity);
    let mut validity = alive.validity;
    while fixture.clock.now() < over {
        tokio::time::sleep(fixture.short() / 3).await;
        validity = other.renew(&alive, validity).await?;
        one.refused(&writer, Queue::Leave, validity).await?;
    }
    one.lost(&silent).await?;
    other.give_back(&alive).await?;
    one.take_within(&writer, SLACK).await?;
    Ok(())
}

async fn one_ends(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let first = one.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    let ended = other.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    let last = one.take(&fixture.claim_as(Mode::Read, &key, fixture.long())?).await?;
    other.end(&ended, None, None).await?;
    other.lost(&ended).await?;
    for hold in [&first, &last] {
        one.renew(hold, hold.validity).await?;
        other.refused(&fixture.claim_as(Mode::Write, &key, fixture.long())?, Queue::Leave, hold.validity).await?;
        one.give_back(hold).await?;
    }
    Ok(())
}
