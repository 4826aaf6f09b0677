//! The holder's note is shown, and the owner id is secret.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Claim, MAX_NOTE_BYTES, Note, Owner, Queue};

use crate::case::{Case, case};
use crate::fixture::Fixture;
use crate::tested::{SLACK, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("the holder's note can be read by another client", always, readable),
    case!("after the release there is no note", always, gone_with_release),
    case!("the longest note is read back unchanged", always, longest),
    case!("an owner id is shown nowhere", always, owners_are_secret, disturbs),
    case!("the profile and the powers are the same at each call and for each client", always, profile_stays),
];

async fn readable(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    for _ in 0..2 {
        let claim = fixture.claim(&key, fixture.long())?;
        let hold = one.take(&claim).await?;
        let note = other.backend.look(&key).await?.note().cloned();
        let read = note.as_ref().map(|note| (note.host(), note.pid(), note.site(), note.since_ms()));
        let given = (claim.note.host(), claim.note.pid(), claim.note.site(), claim.note.since_ms());
        ensure!(read == Some(given), "the note given was {} and {note:?} was read", claim.note);
        one.give_back(&hold).await?;
    }
    Ok(())
}

async fn gone_with_release(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let before = other.backend.look(&key).await?.note().cloned();
    ensure!(before.is_none(), "a lock that nobody ever held has the note {before:?}");
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    one.give_back(&hold).await?;
    let after = other.backend.look(&key).await?.note().cloned();
    ensure!(after.is_none(), "a lock that was released has the note {after:?}");
    Ok(())
}

async fn longest(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let characters: String = ('!'..='~').collect();
    let text: String = "h=here s='\"\\%;{}<> ".chars().chain(characters.chars().cycle()).take(MAX_NOTE_BYTES).collect();
    let note = Note::from_stored(&text);
    let claim = Arc::new(Claim::new(key.clone(), fixture.long(), "")?.with(|claim| claim.note = note.clone()));
    let hold = one.take(&claim).await?;
    let read = other.backend.look(&key).await?.note().cloned();
    ensure!(read.as_ref() == Some(&note), "the note given was {note} and {read:?} was read");
    one.renew(&hold, hold.validity).await?;
    one.give_back(&hold).await
}

async fn owners_are_secret(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let claim = fixture.claim(&key, fixture.long())?;
    let hold = one.take(&claim).await?;
    let waiter = fixture.claim(&key, fixture.long())?;
    let until = fixture.clock.now().after(Duration::from_secs(5));
    let wake = other.refused(&waiter, Queue::until(until), hold.validity).await?;
    let mut shown = format!("{hold:?} {wake:?} {claim:?} {:?}", other.backend.look(&key).await?.note().cloned());
    drop(wake);
    other.backend.abandon(&waiter).await?;
    one.give_back(&hold).await?;
    // Errors too: if the store can be cut off, those of an outage, otherwise those of a lost hold.
    if let Ok(outage) = fixture.outage(super::Outage::Refused).await {
        let next = fixture.claim(&key, fixture.long())?;
        for (client, claim) in [(&one, &claim), (&other, &next)] {
            let answer = tokio::time::timeout(SLACK, client.backend.try_acquire(claim, Queue::Leave)).await;
            shown.push_str(&format!("{answer:?}"));
            if let Ok(Err(error)) = answer {
                shown.push_str(&error.to_string());
            }
        }
        ensure!(!shows(&shown, &next.owner), "an owner id is shown: {shown}");
        drop(outage);
    }
    let _ = tokio::time::timeout(SLACK, async {
        shown.push_str(&format!("{:?} {:?}", one.backend.renew(&[&hold]).await, one.backend.release(&hold).await));
    })
    .await;
    for owner in [&claim.owner, &waiter.owner] {
        ensure!(!shows(&shown, owner), "an owner id is shown: {shown}");
    }
    Ok(())
}

fn shows(text: &str, owner: &Owner) -> bool {
    let (text, bytes) = (text.to_ascii_lowercase(), owner.as_bytes());
    let list = format!("{bytes:?}");
    let escaped = bytes.escape_ascii().to_string();
    let (high, low) =
        owner.to_hex().split_at_checked(16).map(|(h, l)| (h.to_owned(), l.to_owned())).unwrap_or_default();
    [high, low, list, escaped.to_ascii_lowercase()].iter().any(|spelled| text.contains(spelled.as_str()))
}

/// The names of the powers that this client offers.
fn powers(backend: &dyn Backend) -> Vec<&'static str> {
    let offered = [
        ("keeps", backend.keeps().is_some()),
        ("periods", backend.periods().is_some()),
        ("tokens", backend.tokens().is_some()),
        ("exchange", backend.exchange().is_some()),
        ("batch", backend.batch().is_some()),
        ("settle", backend.settle().is_some()),
        ("inspect", backend.inspect().is_some()),
    ];
    offered.into_iter().filter_map(|(name, is_offered)| is_offered.then_some(name)).collect()
}

async fn profile_stays(fixture: &Fixture<'_>) -> Tested {
    let first = format!("{:?}, {:?}", fixture.profile, powers(&*fixture.closed));
    for _ in 0..3 {
        let client = fixture.client().await?;
        for _ in 0..3 {
            let now = format!("{:?}, {:?}", client.backend.profile(), powers(&*client.backend));
            ensure!(now == first, "the profile and the powers were {first} and are {now}");
            pause(1).await;
        }
    }
    Ok(())
}
