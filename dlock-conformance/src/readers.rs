//! Read and write locks: many readers hold together, a writer holds alone.

use std::time::Duration;

use dlock_contract::{Attempt, Mode, Queue, Released};

use crate::bench::{Bench, SLACK, Stop, Tested, case, ensure};
use crate::case::Case;

pub(crate) const CASES: &[Case] = &[
    case!("readers hold a lock together", readers, together),
    case!("a writer holds a lock alone", readers, alone),
    case!("a reader does not overtake a writer that waits", readers_in_order, overtaking),
    case!("a writer that gave up keeps no reader out", readers, gave_up),
    case!("a silent reader's hold ends, and no other reader's", readers, silent_reader),
    case!("the end of one reader leaves the others alone", readers, one_ends),
];

async fn together(bench: &Bench<'_>) -> Tested {
    let key = bench.key()?;
    let mut readers = Vec::new();
    for _ in 0..5 {
        let client = bench.client().await?;
        let hold = client.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
        readers.push((client, hold));
    }
    for (client, hold) in &readers {
        client.renew(hold, hold.validity).await?;
        client.give_back(hold).await?;
    }
    Ok(())
}

async fn alone(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    for (held, asked) in [(Mode::Read, Mode::Write), (Mode::Write, Mode::Read), (Mode::Write, Mode::Write)] {
        let hold = one.take(&bench.claim_as(held, &key, bench.long())?).await?;
        let next = bench.claim_as(asked, &key, bench.long())?;
        one.refused(&next, Queue::Leave, hold.validity).await?;
        other.refused(&next, Queue::Leave, hold.validity).await?;
        one.give_back(&hold).await?;
        let hold = other.take_within(&next, SLACK).await?;
        other.give_back(&hold).await?;
    }
    Ok(())
}

async fn overtaking(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let reader = one.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
    let writer = bench.claim_as(Mode::Write, &key, bench.long())?;
    let until = Queue::until(bench.clock.now().after(bench.long()));
    let wake = other.refused(&writer, until, reader.validity).await?;
    let late = bench.claim_as(Mode::Read, &key, bench.long())?;
    for client in [&one, &other] {
        if let Attempt::Acquired(_) = client.ask(&late, Queue::Leave).await? {
            return Err(Stop::Failed("a reader got the lock before a writer that waited longer".into()));
        }
    }
    one.give_back(&reader).await?;
    let hold = other.wait_on(&writer, Some(wake), SLACK * 2).await?;
    other.give_back(&hold).await?;
    one.take_within(&late, SLACK).await?;
    Ok(())
}

async fn gave_up(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let reader = one.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
    let writer = bench.claim_as(Mode::Write, &key, bench.long())?;
    let until = Queue::until(bench.clock.now().after(bench.long()));
    drop(other.refused(&writer, until, reader.validity).await?);
    other.backend.abandon(&writer).await?;
    let next = one.take_within(&bench.claim_as(Mode::Read, &key, bench.long())?, SLACK).await?;
    one.give_back(&next).await?;
    one.give_back(&reader).await?;
    Ok(())
}

async fn silent_reader(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let silent = one.take(&bench.claim_as(Mode::Read, &key, bench.short())?).await?;
    let alive = other.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
    let writer = bench.claim_as(Mode::Write, &key, bench.long())?;
    let over = bench.profile.takeover(silent.validity.granted) + Duration::from_millis(250);
    let over = silent.validity.from.after(over);
    let mut validity = alive.validity;
    while bench.clock.now() < over {
        tokio::time::sleep(bench.short() / 3).await;
        validity = other.renew(&alive, validity).await?;
        one.refused(&writer, Queue::Leave, validity).await?;
    }
    one.lost(&silent).await?;
    other.give_back(&alive).await?;
    one.take_within(&writer, SLACK).await?;
    Ok(())
}

async fn one_ends(bench: &Bench<'_>) -> Tested {
    let (key, one, other) = (bench.key()?, bench.client().await?, bench.client().await?);
    let first = one.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
    let ended = other.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
    let last = one.take(&bench.claim_as(Mode::Read, &key, bench.long())?).await?;
    let released = other.give_back(&ended).await?;
    ensure!(released == Released::Released, "the release of a reader returned {released:?}");
    other.lost(&ended).await?;
    for hold in [&first, &last] {
        one.renew(hold, hold.validity).await?;
        other.refused(&bench.claim_as(Mode::Write, &key, bench.long())?, Queue::Leave, hold.validity).await?;
        one.give_back(hold).await?;
    }
    Ok(())
}
