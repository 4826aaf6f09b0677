//! Different names are different locks, and different locks do not touch each other.

use dlock_contract::{Error, ErrorKind, Hold, Key, LockKey, Queue, Standing};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Fixture, literal};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

pub(crate) const CASES: &[Case] = &[
    case!("keys that differ by case are different locks", always, by_case),
    case!("keys that differ in their last characters are different locks", always, by_tail),
    case!("keys that differ after a long common beginning are different locks", always, by_suffix),
    case!("keys that differ by a separator are different locks", always, by_separator),
    case!("a key is one lock for each client, and different keys are different ones", always, identities),
    case!("the place of the store is its hosts and ports, or its file, and names no account", always, place),
    case!("the longest key works like any other key", always, longest),
    case!("the end of one lock leaves the client's other locks alone", always, apart),
    case!("holds that are renewed together get one answer each, in order", always, in_one_batch),
    case!("holds of one group are renewed in one request and each gets an answer", always, in_one_group),
];

async fn by_case(fixture: &Fixture<'_>) -> Tested {
    different(fixture, [("stock", "Stock"), ("x", "X")].map(|(one, other)| (one.to_owned(), other.to_owned())).into())
        .await
}

async fn by_tail(fixture: &Fixture<'_>) -> Tested {
    let tails = ["", ".", " ", "  ", "\0", "/", "_", "0"];
    let pairs = tails.iter().zip(&tails[1..]);
    different(fixture, pairs.map(|(one, other)| (format!("a{one}"), format!("a{other}"))).collect()).await
}

async fn by_suffix(fixture: &Fixture<'_>) -> Tested {
    let most = fixture.profile.max_key_bytes;
    let lengths = [60, 64, 200, 255, 512].into_iter().filter(|length| length + 80 <= most);
    let mut pairs = Vec::new();
    for length in lengths {
        let common = "x".repeat(length);
        pairs.push((format!("{common}1"), format!("{common}2")));
    }
    different(fixture, pairs).await
}

async fn by_separator(fixture: &Fixture<'_>) -> Tested {
    let spelled = ["a/b", "a:b", "a.b", "a-b", "a_b", "a|b", "a,b", "a*b", "a?b", "a%b", "a\\b", "a'b", "a\"b"];
    let pairs = spelled.iter().zip(&spelled[1..]);
    different(fixture, pairs.map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()).await
}

/// Both locks of every pair can be held at once, and each stays held when the other is released.
async fn different(fixture: &Fixture<'_>, pairs: Vec<(String, String)>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    for (left, right) in pairs {
        let stem = format!("{:016x}", fastrand::u64(..));
        let full = |end: &str| LockKey::new("conformance", Key::text("k").value(&format!("{stem}{end}")));
        // Once inside the marks, and once at the very end of the name, where a store may trim or fold.
        for at_end in [false, true] {
            let (left, right) = if at_end {
                (literal(&format!("{stem}{left}"))?, literal(&format!("{stem}{right}"))?)
            } else {
                (full(&left)?, full(&right)?)
            };
            if nameless(fixture, &one, &left).await? || nameless(fixture, &one, &right).await? {
                continue;
            }
            let first = one.take(&fixture.claim(&left, fixture.long())?).await?;
            let second = match other.ask(&fixture.claim(&right, fixture.long())?, Queue::Leave).await? {
                dlock_contract::Attempt::Acquired(hold) => hold,
                dlock_contract::Attempt::Contended(_) | dlock_contract::Attempt::AlreadyRun => {
                    return Err(Stop::Failed(format!("{right} was refused while {left} was held")));
                }
            };
            one.give_back(&first).await?;
            let third = fixture.claim(&right, fixture.long())?;
            one.refused(&third, Queue::Leave, second.validity).await?;
            other.renew(&second, second.validity).await?;
            other.give_back(&second).await?;
        }
    }
    Ok(())
}

/// Engines compare identities. Two callers of one process must find each other by them, and must not wait for a lock
/// that is another one.
async fn identities(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    let (key, next) = (fixture.key()?, fixture.key()?);
    let (first, again) = (one.backend.identify(&key)?, other.backend.identify(&key)?);
    let same = (first.lock(), first.names()) == (again.lock(), again.names());
    ensure!(same, "one client says {first:?}, and another one {again:?}");
    let apart = one.backend.identify(&next)?;
    ensure!(first.lock() != apart.lock(), "{key} and {next} are one lock, by their identities");
    let shared = first.names().into_iter().find(|name| apart.names().contains(name));
    ensure!(shared.is_none(), "{key} and {next} have the name {shared:?}");
    Ok(())
}

/// The log shows the place. A URL there would show the password too.
async fn place(fixture: &Fixture<'_>) -> Tested {
    let Some(place) = fixture.client().await?.backend.host() else { return Ok(()) };
    let is_path = place.starts_with(['/', '.']) || place.contains('\\');
    let is_port = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    ensure!(is_path || place.split(':').skip(1).any(is_port), "{place:?} is neither a host and its port nor a file");
    let has_account = place.contains('@') || place.contains("://") || place.contains('?');
    ensure!(!has_account, "{place:?} may have an account");
    Ok(())
}

/// Whether the store refuses this key, as its profile says that it may. Then the key meets no other key.
async fn nameless(fixture: &Fixture<'_>, client: &Client, key: &LockKey) -> Tested<bool> {
    if fixture.profile.any_key {
        return Ok(false);
    }
    let claim = fixture.claim(key, fixture.long())?;
    match client.backend.try_acquire(&claim, Queue::Leave).await {
        Err(error) => Ok(matches!(error.kind(), ErrorKind::Unsupported { .. })),
        Ok(_) => {
            client.backend.abandon(&claim).await?;
            Ok(false)
        }
    }
}

async fn longest(fixture: &Fixture<'_>) -> Tested {
    let most = fixture.profile.max_key_bytes.min(dlock_contract::MAX_KEY_BYTES);
    let stem = format!("{:016x}", fastrand::u64(..));
    let bare = literal(&stem)?.as_str().len();
    ensure!(most > bare, "a key of {bare} bytes is longer than the longest one");
    let key = literal(&format!("{stem}{}", "x".repeat(most - bare)))?;
    ensure!(key.as_str().len() == most, "the key has {} bytes instead of {most}", key.as_str().len());
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    if nameless(fixture, &one, &key).await? {
        return Ok(());
    }
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    other.refused(&fixture.claim(&key, fixture.long())?, Queue::Leave, hold.validity).await?;
    let until = fixture.clock.now().after(fixture.long());
    let waiter = fixture.claim(&key, fixture.long())?;
    drop(other.refused(&waiter, Queue::until(until), hold.validity).await?);
    other.backend.abandon(&waiter).await?;
    one.renew(&hold, hold.validity).await?;
    one.give_back(&hold).await
}

async fn apart(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    let kept = one.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    let ended = one.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    one.give_back(&ended).await?;
    let next = fixture.claim(&kept.claim.key, fixture.long())?;
    other.refused(&next, Queue::Leave, kept.validity).await?;
    one.renew(&kept, kept.validity).await?;
    one.give_back(&kept).await
}

async fn in_one_batch(fixture: &Fixture<'_>) -> Tested {
    let one = fixture.client().await?;
    let mut holds = Vec::new();
    for _ in 0..4 {
        holds.push(one.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?);
    }
    // The first hold is gone, so answers in any other order would name another hold.
    if let Some(gone) = holds.first() {
        one.give_back(gone).await?;
    }
    let end = fixture.clock.now().after(SLACK);
    let answers = loop {
        let answers = one.backend.renew(&holds.iter().collect::<Vec<_>>()).await;
        ensure!(answers.len() == holds.len(), "{} renewals were answered {} times", holds.len(), answers.len());
        // On a busy machine a store may give up a renewal. The engine asks again, too.
        let is_given_up = |answer: &Result<Standing, Error>| answer.as_ref().is_err_and(Error::is_retryable);
        if !answers.iter().skip(1).any(is_given_up) || fixture.clock.now() >= end {
            break answers;
        }
        pause(20).await;
    };
    for (number, answer) in answers.into_iter().enumerate() {
        let right = match answer {
            Ok(Standing::Lost) => number == 0,
            Ok(Standing::Renewed(_)) => number > 0,
            // The session of a released hold ends, and its end may be seen before the answer.
            Err(_) => number == 0,
        };
        ensure!(right, "only the first of several holds was gone, and number {number} got a wrong answer");
    }
    for hold in holds.iter().skip(1) {
        one.give_back(hold).await?;
    }
    Ok(())
}

async fn in_one_group(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    let mut holds: Vec<Hold> = Vec::new();
    for _ in 0..3 {
        holds.push(one.take(&fixture.claim(&fixture.key()?, fixture.short())?).await?);
    }
    let Some(group) = holds.first().and_then(Hold::group) else {
        return Err(Stop::NotApplicable("holds are in no group".into()));
    };
    ensure!(holds.iter().all(|hold| hold.group() == Some(group)), "holds alike are in different groups");
    let mut current: Vec<_> = holds.iter().map(|hold| hold.validity).collect();
    for _ in 0..4 {
        tokio::time::sleep(fixture.short() / 3).await;
        for validity in &current {
            one.in_time(*validity)?;
        }
        let answers = one.backend.renew(&holds.iter().collect::<Vec<_>>()).await;
        ensure!(answers.len() == holds.len(), "{} holds of a group were answered {} times", holds.len(), answers.len());
        for (validity, answer) in current.iter_mut().zip(answers) {
            match answer? {
                Standing::Renewed(renewed) => *validity = renewed,
                Standing::Lost => {
                    one.in_time(*validity)?;
                    return Err(Stop::Failed("a hold of a group that is held was answered with Lost".into()));
                }
            }
        }
    }
    for (hold, validity) in holds.iter().zip(&current) {
        other.refused(&fixture.claim(&hold.claim.key, fixture.short())?, Queue::Leave, *validity).await?;
    }
    for hold in &holds {
        one.give_back(hold).await?;
    }
    let next = fixture.claim(&fixture.key()?, fixture.long())?;
    other.take_within(&next, SLACK).await?;
    Ok(())
}
