//! Inspection: holders by their hold ids, listings, and breaking a hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use dlock_contract::{Attempt, Backend, BreakRecord, HoldId, Inspect, Listing, LockKey, Note, Queue};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Fixture, literal};
use crate::tested::{SLACK, Stop, Tested, ensure};

pub(crate) const CASES: &[Case] = &[
    case!("look shows each holder with its hold id", always, holds_have_ids),
    case!("a refusal that names a holder names the current one", always, refusals_name_the_holder),
    case!("waiters that a store names are those of its queue, in their order", wakes, waiters_named),
    case!("a broken hold is Lost, and the next owner gets the lock", always, broken),
    case!("the owner of a broken hold can read who broke it", always, record_is_left),
    case!("an id of an earlier hold breaks nothing", always, breaking_compares),
    case!("a listing has each lock that is held, page by page", always, listed),
    case!("a listing has only the keys of its prefix", always, listed_by_prefix),
    case!("a listing has no lock that was released", always, released_is_not_listed),
];

pub(crate) fn inspect(backend: &Arc<dyn Backend>) -> Tested<&dyn Inspect> {
    backend.inspect().ok_or_else(|| Stop::NotApplicable("inspect: None".into()))
}

async fn holds_have_ids(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    inspect(&one.backend)?;
    ensure!(other.backend.look(&key).await?.holders.is_empty(), "a free lock has holders");
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let state = other.backend.look(&key).await?;
    let [holder] = &state.holders[..] else { return Err(Stop::Failed(format!("one holder is shown as {state:?}"))) };
    let id = HoldId::of(&hold.claim.owner);
    ensure!(holder.id == Some(id), "the hold {id} is shown as {:?}", holder.id);
    let token = hold.token.map(|token| token.get());
    ensure!(holder.token.is_none() || holder.token == token, "the token {token:?} is shown as {:?}", holder.token);
    let left = holder.lease_left.unwrap_or_default();
    ensure!(left <= hold.claim.ttl, "a ttl of {:?} is shown with {left:?} left", hold.claim.ttl);
    one.give_back(&hold).await
}

async fn refusals_name_the_holder(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    for _ in 0..2 {
        let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
        let refused = fixture.claim(&key, fixture.long())?;
        let Attempt::Contended(wake) = other.ask(&refused, Queue::Leave).await? else {
            return Err(Stop::Failed("a second owner got the lock".into()));
        };
        let named = wake.held_by.as_ref();
        ensure!(
            named.is_none_or(|note| *note == hold.claim.note),
            "the holder is {}, and it is named as {named:?}",
            hold.claim.note
        );
        one.give_back(&hold).await?;
    }
    Ok(())
}

async fn waiters_named(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let inspects = inspect(&other.backend)?;
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    match inspects.waiters(&key, 9).await? {
        Some(named) => ensure!(named.is_empty(), "nobody waits, and {named:?} are named"),
        None => return Err(Stop::NotApplicable("waiters: None".into())),
    }
    let until = fixture.clock.now().after(SLACK * 4);
    let (first, second) = (fixture.claim(&key, fixture.long())?, fixture.claim(&key, fixture.long())?);
    let _first_wake = one.stand(&first, until, hold.validity).await?;
    let _second_wake = other.stand(&second, until, hold.validity).await?;
    let both = named(inspects, &key, 9).await?;
    ensure!(
        both == [first.note.clone(), second.note.clone()],
        "{} and {} wait, and {both:?} are named",
        first.note,
        second.note
    );
    let next = named(inspects, &key, 1).await?;
    ensure!(next == [first.note.clone()], "{} waits first, and {next:?} is named first", first.note);
    one.backend.abandon(&first).await?;
    let left = named(inspects, &key, 9).await?;
    ensure!(left == [second.note.clone()], "only {} waits, and {left:?} are named", second.note);
    other.backend.abandon(&second).await?;
    one.give_back(&hold).await
}

async fn named(store: &dyn Inspect, key: &LockKey, limit: usize) -> Tested<Vec<Note>> {
    store
        .waiters(key, limit)
        .await?
        .ok_or_else(|| Stop::Failed("the waiters are unknown now, and were known before".into()))
}

async fn broken(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let hold = one.take(&fixture.claim(&key, fixture.long())?).await?;
    ensure!(break_by(&other, &key, HoldId::of(&hold.claim.owner)).await?, "a hold that is held was not broken");
    one.lost(&hold).await?;
    let next = other.take(&fixture.claim(&key, fixture.long())?).await?;
    other.give_back(&next).await
}

async fn record_is_left(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let (inspects, claim) = (inspect(&one.backend)?, fixture.claim(&key, fixture.long())?);
    let hold = one.take(&claim).await?;
    let before = inspects.record_of(&hold).await?;
    ensure!(before.is_none(), "a hold that nobody broke has the record {before:?}");
    break_by(&other, &key, HoldId::of(&hold.claim.owner)).await?;
    let read = inspects.record_of(&hold).await?;
    ensure!(read == Some(record()), "the record left was {:?} and {read:?} was read", record());
    let another = other.take(&fixture.claim(&fixture.key()?, fixture.long())?).await?;
    let others = inspect(&other.backend)?.record_of(&another).await?;
    ensure!(others.is_none(), "another hold has the record {others:?}");
    other.give_back(&another).await
}

async fn breaking_compares(fixture: &Fixture<'_>) -> Tested {
    let (key, one, other) = (fixture.key()?, fixture.client().await?, fixture.client().await?);
    let earlier = one.take(&fixture.claim(&key, fixture.long())?).await?;
    let id = HoldId::of(&earlier.claim.owner);
    one.give_back(&earlier).await?;
    ensure!(!break_by(&other, &key, id).await?, "a hold that was released is reported as broken");
    let newer = one.take(&fixture.claim(&key, fixture.long())?).await?;
    ensure!(!break_by(&other, &key, id).await?, "an earlier hold is reported as broken");
    one.renew(&newer, newer.validity).await?;
    one.give_back(&newer).await
}

async fn listed(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    inspect(&one.backend)?;
    let prefix = prefix();
    let mut holds = Vec::new();
    for number in 0..7 {
        let key = literal(&format!("{prefix}{number}"))?;
        holds.push(one.take(&fixture.claim(&key, fixture.long())?).await?);
    }
    let held = holds.iter().map(|hold| one.lock_of(&hold.claim.key)).collect::<Result<BTreeSet<_>, _>>()?;
    let listed = list(&other, &prefix, 3).await?;
    ensure!(listed == held, "{held:?} are held, and {listed:?} are listed");
    for hold in &holds {
        one.give_back(hold).await?;
    }
    Ok(())
}

async fn listed_by_prefix(fixture: &Fixture<'_>) -> Tested {
    let (one, other) = (fixture.client().await?, fixture.client().await?);
    inspect(&one.backend)?;
    let prefix = prefix();
    // The second key would match as a pattern. The third comes before all keys with the prefix.
    let [within, like, before] = [format!("{prefix}*a"), format!("{prefix}-b"), prefix.replace("list:", "lisa:")];
    let mut holds = Vec::new();
    for text in [&within, &like, &before] {
        holds.push(one.take(&fixture.claim(&literal(text)?, fixture.long())?).await?);
    }
    let listed = list(&other, &format!("{prefix}*"), 100).await?;
    let only = BTreeSet::from([other.lock_of(&literal(&within)?)?]);
    ensure!(listed == only, "with the prefix {prefix}* the listing has {listed:?}");
    for hold in &holds {
        one.give_back(hold).await?;
    }
    Ok(())
}

async fn released_is_not_listed(fixture: &Fixture<'_>) -> Tested {
    let (one, two, other) = (fixture.client().await?, fixture.client().await?, fixture.client().await?);
    inspect(&one.backend)?;
    let prefix = prefix();
    let [kept, released] = [literal(&format!("{prefix}a"))?, literal(&format!("{prefix}b"))?];
    let hold = one.take(&fixture.claim(&kept, fixture.long())?).await?;
    let ended = two.take(&fixture.claim(&released, fixture.long())?).await?;
    two.give_back(&ended).await?;
    let listed = list(&other, &prefix, 100).await?;
    let only = BTreeSet::from([other.lock_of(&kept)?]);
    ensure!(listed == only, "the listing has {listed:?} beside the held lock");
    one.give_back(&hold).await
}

/// All pages of a listing. An entry that is not held when `look` checks it counts as not listed.
async fn list(client: &Client, prefix: &str, limit: u32) -> Tested<BTreeSet<LockKey>> {
    let inspect = inspect(&client.backend)?;
    let mut listing =
        Listing::of("conformance").with(|listing| (listing.prefix, listing.limit) = (prefix.into(), limit));
    let mut found = BTreeSet::new();
    // A scan goes over all keys of the server, and returns a few at a time.
    for _ in 0..100_000 {
        let page = inspect.list(&listing).await?;
        found.extend(page.locks);
        match page.next {
            Some(cursor) => listing.after = Some(cursor),
            None => return Ok(found),
        }
    }
    Err(Stop::Failed("a listing has no last page".into()))
}

/// A prefix that no other case uses.
fn prefix() -> String {
    format!("list:{:016x}:", fastrand::u64(..))
}

fn record() -> BreakRecord {
    BreakRecord::new("the-suite", 17, "to see it lost")
}

async fn break_by(client: &Client, key: &LockKey, id: HoldId) -> Tested<bool> {
    Ok(inspect(&client.backend)?.break_hold(key, id, &record()).await?)
}
