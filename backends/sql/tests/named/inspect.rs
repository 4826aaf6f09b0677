//! Listings, and holds that an operator breaks.

use std::time::{Duration, Instant};

use dlock::{ErrorKind, HoldId, Key, LockKey, LossCause, Registry};
use dlock_contract::{Backend, BreakRecord, Hold, Inspect, Listing, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::{Proxy, lateness};
use futures::FutureExt;

use super::support::take_soon;
use crate::named_kit::{Database, Store, TTL, is_used, open, open_at, session_of, session_of_name};

named_cases! {
    a_look_tells_the_hold_and_its_token
    a_break_is_noticed_by_the_monitor
    a_body_is_told_who_broke_its_lock
    a_session_that_was_parked_and_used_again_is_not_touched
    a_record_outlives_the_next_hold
    an_owner_that_comes_back_after_a_break_holds_again
    a_holder_that_does_not_answer_keeps_the_lock
    a_listing_counts_free_rows_and_leaves_them_out
    keys_that_are_longer_than_the_index_are_listed
}

fn id_of(hold: &Hold) -> HoldId {
    HoldId::of(&hold.claim.owner)
}

fn record() -> BreakRecord {
    BreakRecord::new("alice", 17, "web-3 hangs")
}

async fn a_look_tells_the_hold_and_its_token(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    let state = other.look(&hold.claim.key).await.unwrap();
    let [holder] = &state.holders[..] else { panic!("{state:?}") };
    assert_eq!((holder.id, holder.token), (Some(id_of(&hold)), Some(token(&hold))));
    assert_eq!((&holder.note, holder.lease_left, state.waiters), (&hold.claim.note, None, None));
    // The name that an operator pastes into the server's own functions.
    let [name] = &other.identify(&hold.claim.key).unwrap().names()[..] else { panic!("one name") };
    assert!(is_used(&database, name).await, "{name}");
}

async fn a_break_is_noticed_by_the_monitor(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    for age in [0, 600] {
        let hold = take(&one, &database.claim("a", TTL)).await;
        let kept = take(&one, &database.claim("b", TTL)).await;
        tokio::time::sleep(Duration::from_millis(age)).await;
        let started = Instant::now();
        assert!(other.break_hold(&hold.claim.key, id_of(&hold), &record()).await.unwrap());
        eprintln!("broken after {:?}", started.elapsed());
        assert_eq!(session_of(&database, "a").await, None, "the lock is still held");
        // The loss is reported without a renewal. A renewal is then answered with the loss and the record.
        let ended = hold.session.as_ref().unwrap().ended().unwrap();
        assert!(ended.now_or_never().is_some(), "the end was not told");
        assert_eq!(confirm(&one, &hold).await, Standing::Lost);
        assert_eq!(one.record_of(&hold).await.unwrap(), Some(record()));
        assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
        assert!(!other.break_hold(&hold.claim.key, id_of(&hold), &record()).await.unwrap(), "broken twice");
        assert!(matches!(confirm(&one, &kept).await, Standing::Renewed(_)), "the break of one hold ended another");
        assert_eq!(one.release(&kept).await.unwrap(), Released::Released);
    }
}

async fn a_body_is_told_who_broke_its_lock(database: Database) {
    let registry = Registry::new();
    registry.install("sql", open(&database).await).unwrap();
    let namespace = database.name.clone();
    registry.configure(|defaults| defaults.namespace = namespace.clone()).unwrap();
    let guard = registry.lock("a").ttl(TTL).acquire().await.unwrap();
    let id = registry.lock("a").holders().await.unwrap().holders[0].id.unwrap();
    assert!(registry.lock("a").break_hold(id).by("alice").because("web-3 hangs").await.unwrap());
    // Long before the next renewal.
    let error = tokio::time::timeout(TTL / 4, guard.lost()).await.unwrap();
    assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
    assert!(error.to_string().contains("alice@") && error.to_string().contains("web-3 hangs"), "{error}");
}

/// A `KILL` of the session that was seen would end another lock here.
async fn a_session_that_was_parked_and_used_again_is_not_touched(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let earlier = take(&one, &database.claim("a", TTL)).await;
    let session = session_of(&database, "a").await;
    one.release(&earlier).await.unwrap();
    let same_key = take(&one, &database.claim("a", TTL)).await;
    assert_eq!(session_of(&database, "a").await, session, "the session was not used again: nothing is proven");
    assert!(!other.break_hold(&earlier.claim.key, id_of(&earlier), &record()).await.unwrap());
    // A request that came in time for the earlier hold, and that its process reads late.
    let late = id_of(&earlier);
    database
        .change(&format!("UPDATE dlock_named SET broken_hold = '{late}', broken_record = 'by=alice t=1 r=late'"))
        .await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(matches!(confirm(&one, &same_key).await, Standing::Renewed(_)), "a newer hold was broken");
    assert_eq!(session_of(&database, "a").await, session);
    assert_eq!(one.release(&same_key).await.unwrap(), Released::Released);
}

async fn a_record_outlives_the_next_hold(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut hold = take(&one, &database.claim("a", TTL)).await;
    assert_eq!(one.record_of(&hold).await.unwrap(), None);
    assert!(other.break_hold(&hold.claim.key, id_of(&hold), &record()).await.unwrap());
    let next = take(&other, &database.claim("a", TTL)).await;
    // The session remembers the record; here the row tells it.
    hold.session = None;
    assert_eq!(one.record_of(&hold).await.unwrap(), Some(record()));
    assert_eq!(other.record_of(&next).await.unwrap(), None);
}

async fn an_owner_that_comes_back_after_a_break_holds_again(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let claim = database.claim("a", TTL);
    let hold = take(&one, &claim).await;
    assert!(other.break_hold(&claim.key, id_of(&hold), &record()).await.unwrap());
    let again = take(&one, &claim).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(matches!(confirm(&one, &again).await, Standing::Renewed(_)), "the old request broke the new hold");
    assert_eq!(one.record_of(&again).await.unwrap(), None);
}

async fn a_holder_that_does_not_answer_keeps_the_lock(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let (one, other) = (open_at(&url).await, open(&database).await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    proxy.set(dlock_testkit::Mode::BLACKHOLE);
    lateness::watch();
    let started = Instant::now();
    let error = other.break_hold(&hold.claim.key, id_of(&hold), &record()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage), "{error}");
    assert!(error.to_string().contains("did not give the lock up within 2s"), "{error}");
    lateness::assert_within(Duration::from_secs(8), started, "the answer");
    assert!(session_of(&database, "a").await.is_some());
    assert_eq!(other.record_of(&hold).await.unwrap(), None, "the request was not taken back");
}

/// The lock with this text as its key.
fn literal(database: &Database, text: &'static str) -> LockKey {
    LockKey::new(&database.name, Key::text(text)).unwrap()
}

async fn all_pages(store: &Store, listing: &Listing) -> (Vec<LockKey>, usize) {
    let (mut listing, mut found, mut pages) = (listing.clone(), Vec::new(), 0);
    loop {
        let page = store.list(&listing).await.unwrap();
        pages += 1;
        found.extend(page.locks);
        match page.next {
            Some(next) => listing.after = Some(next),
            None => return (found, pages),
        }
    }
}

async fn a_listing_counts_free_rows_and_leaves_them_out(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut held = Vec::new();
    for number in 0..20 {
        let claim = claim_on(&LockKey::new(&database.name, Key::text("job:").value(&number)).unwrap(), TTL, |_| ());
        let hold = take_soon(&one, &claim).await.0;
        match number % 10 {
            3 => held.push(hold),
            _ => drop(one.release(&hold).await.unwrap()),
        }
    }
    let beside = take(&one, &claim_on(&literal(&database, "joa"), TTL, |_| ())).await;
    let listing = Listing::of(database.name.clone());
    let jobs = listing.clone().with(|listing| (listing.prefix, listing.limit) = ("job:".into(), 4));
    let (found, pages) = all_pages(&other, &jobs).await;
    let mut keys: Vec<_> = held.iter().map(|hold| hold.claim.key.clone()).collect();
    keys.sort();
    assert_eq!((found, pages), (keys.clone(), 6), "20 rows are five full pages of 4 and an empty one");
    let (found, pages) = all_pages(&other, &listing).await;
    assert_eq!((found.len(), pages), (3, 1));
    assert!(found.contains(&beside.claim.key));
    // A place before the range is its beginning.
    let early = jobs.with(|listing| listing.after = Some(dlock::Cursor::new("a")));
    assert_eq!(all_pages(&other, &early).await.0, keys);
}

async fn keys_that_are_longer_than_the_index_are_listed(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut keys = Vec::new();
    for end in ["a", "b", "c"] {
        let key =
            LockKey::new(&database.name, Key::text("long:").value(&format!("{}{end}", "x".repeat(3000)))).unwrap();
        keys.push(key);
    }
    let mut holds = Vec::new();
    for key in &keys {
        holds.push(take(&one, &claim_on(key, TTL, |_| ())).await);
    }
    let listing = Listing::of(database.name.clone()).with(|listing| listing.limit = 1);
    let mut found = all_pages(&other, &listing).await.0;
    found.sort();
    assert_eq!(found, keys);
    let only = listing.with(|listing| listing.prefix = format!("long:<{}b", "x".repeat(3000)));
    assert_eq!(all_pages(&other, &only).await.0, [keys[1].clone()]);
    assert!(other.break_hold(&keys[1], id_of(&holds[1]), &record()).await.unwrap());
    assert_eq!(session_of_name(&database, keys[1].as_str()).await, None);
}
