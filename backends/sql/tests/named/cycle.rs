//! One lock from its grant to its end.

use std::time::{Duration, Instant};

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::{Mode, Proxy, lateness};

use super::support::{take_soon, until};
use crate::named_kit::{Database, TTL, key, open, open_at, session_of};

named_cases! {
    a_lock_is_taken_renewed_and_freed
    a_second_backend_is_refused_until_the_release
    an_owner_that_asks_again_is_confirmed_and_keeps_its_token
    a_killed_session_frees_its_lock_and_is_lost
    a_silent_session_ends_at_its_ttl_and_not_earlier
    a_renewal_never_creates
    tokens_rise_over_release_reopening_and_lost_rows
    abandon_frees_twice_and_touches_nobody_else
    keys_differ_by_case_blank_and_long_suffix
    sessions_are_used_again_and_shared_by_locks_of_one_ttl
    a_lock_that_is_held_in_a_session_is_never_granted_twice_there
}

async fn a_lock_is_taken_renewed_and_freed(database: Database) {
    let one = open(&database).await;
    let claim = database.claim("a", TTL);
    let before = Clock::system().now();
    let hold = take(&one, &claim).await;
    assert!(hold.validity.from >= before && hold.validity.from <= Clock::system().now());
    assert!(session_of(&database, "a").await.is_some());
    assert_eq!(one.look(&claim.key).await.unwrap().note().cloned().unwrap(), claim.note);
    let Standing::Renewed(validity) = confirm(&one, &hold).await else { panic!("lost") };
    assert!(validity.from > hold.validity.from && validity.granted == TTL);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(session_of(&database, "a").await, None);
    assert_eq!(one.look(&claim.key).await.unwrap().note().cloned(), None, "the note of a past holder is nobody's");
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
}

async fn a_second_backend_is_refused_until_the_release(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    let second = database.claim("a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&second, Queue::Leave).await.unwrap() else {
        panic!("two holders")
    };
    assert!(wake.signal.is_none(), "an attempt that does not wait must not leave a waiter");
    one.release(&hold).await.unwrap();
    assert!(token(&take(&other, &second).await) > token(&hold));
}

async fn an_owner_that_asks_again_is_confirmed_and_keeps_its_token(database: Database) {
    let one = open(&database).await;
    let claim = database.claim("a", TTL);
    let first = take(&one, &claim).await;
    let again = take(&one, &claim).await;
    assert_eq!(token(&again), token(&first));
    assert!(again.validity.from > first.validity.from);
    drop(first);
    assert!(matches!(confirm(&one, &again).await, Standing::Renewed(_)), "one answer's drop ended the other's lock");
    assert_eq!(one.release(&again).await.unwrap(), Released::Released);
}

async fn a_killed_session_frees_its_lock_and_is_lost(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    database.kill(session_of(&database, "a").await.unwrap()).await;
    let (next, _) = take_soon(&other, &database.claim("a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)), "the late release freed another's lock");
}

/// Of two kinds: one that asks for nothing more, and one whose host has vanished without a word.
async fn a_silent_session_ends_at_its_ttl_and_not_earlier(database: Database) {
    lateness::watch();
    let ttl = Duration::from_secs(1);
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let (one, far, other) = (open(&database).await, open_at(&url).await, open(&database).await);
    let began = Instant::now();
    let claims = ["a", "b"].map(|text| database.claim(text, ttl));
    let (silent, vanished) = tokio::join!(take(&one, &claims[0]), take(&far, &claims[1]));
    proxy.set(Mode::BLACKHOLE);
    let again = async |text: &str| {
        let asked = Instant::now();
        take_soon(&other, &database.claim(text, TTL)).await;
        assert!(began.elapsed() > ttl, "the lock was granted again {:?} after it was asked for", began.elapsed());
        lateness::assert_within(ttl + one.profile().takeover_delay, asked, "the next grant");
    };
    tokio::join!(again("a"), again("b"));
    assert_eq!(confirm(&one, &silent).await, Standing::Lost);
    assert_eq!(confirm(&far, &vanished).await, Standing::Lost);
}

async fn a_renewal_never_creates(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &database.claim("a", TTL)).await;
    one.release(&hold).await.unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(session_of(&database, "a").await, None);
}

async fn tokens_rise_over_release_reopening_and_lost_rows(database: Database) {
    let mut last = 0;
    for round in 0..6 {
        let one = open(&database).await;
        for _ in 0..3 {
            let hold = take(&one, &database.claim("a", TTL)).await;
            assert!(token(&hold) > last && token(&hold) < 1 << 53, "{} after {last}", token(&hold));
            last = token(&hold);
            one.release(&hold).await.unwrap();
        }
        if round == 2 {
            database.change("DELETE FROM dlock_named").await;
        }
        if round == 3 {
            // A server clock that was set back.
            database.change("UPDATE dlock_named SET token = token + 60000000").await;
        }
    }
}

async fn abandon_frees_twice_and_touches_nobody_else(database: Database) {
    let one = open(&database).await;
    let claim = database.claim("a", TTL);
    let hold = take(&one, &claim).await;
    one.abandon(&claim).await.unwrap();
    one.abandon(&claim).await.unwrap();
    assert_eq!(session_of(&database, "a").await, None);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    let other = take(&one, &database.claim("a", TTL)).await;
    one.abandon(&claim).await.unwrap();
    assert!(matches!(confirm(&one, &other).await, Standing::Renewed(_)));
}

async fn keys_differ_by_case_blank_and_long_suffix(database: Database) {
    let one = open(&database).await;
    let long = "x".repeat(3000);
    let mut holds = Vec::new();
    for text in ["a", "A", "a ", "é", "e\u{301}", "'; DROP TABLE dlock_named; --", "\\", &long, &format!("{long}y")] {
        holds.push(take(&one, &database.claim(text, TTL)).await);
    }
    assert_eq!(database.lines("SELECT COUNT(*) FROM dlock_named WHERE k <> ''").await, ["9"]);
}

async fn sessions_are_used_again_and_shared_by_locks_of_one_ttl(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &database.claim("a", TTL)).await;
    let first = session_of(&database, "a").await;
    one.release(&hold).await.unwrap();
    let again = take(&one, &database.claim("a", TTL)).await;
    assert_eq!(session_of(&database, "a").await, first, "a clean session is kept");
    let other = take(&one, &database.claim("b", TTL)).await;
    assert_eq!(session_of(&database, "b").await, first, "a free lock has a session of its own");
    let longer = take(&one, &database.claim("c", TTL * 2)).await;
    assert_ne!(session_of(&database, "c").await, first, "the server ends a session after one ttl, not after two");
    let alone = claim_on(&key(&database, "d"), TTL, |claim| claim.renewed = false);
    let alone = take(&one, &alone).await;
    assert_ne!(session_of(&database, "d").await, first, "renewals of others prolong a hold that is not renewed");
    for hold in [again, other, longer, alone] {
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    }
    for text in ["a", "b", "c", "d"] {
        assert_eq!(session_of(&database, text).await, None);
    }
}

async fn a_lock_that_is_held_in_a_session_is_never_granted_twice_there(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &database.claim("a", TTL)).await;
    for queue in [Queue::Leave, until(Duration::from_millis(50))] {
        let second = database.claim("a", TTL);
        let Attempt::Contended(wake) = one.try_acquire(&second, queue).await.unwrap() else { panic!("two holders") };
        if let Some(signal) = wake.signal {
            assert!(matches!(signal.await.unwrap(), Signal::Ask), "two holders");
        }
    }
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(session_of(&database, "a").await, None, "it was taken more often than it was freed");
}
