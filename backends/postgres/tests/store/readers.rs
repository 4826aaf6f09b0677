//! Advisory locks that readers hold together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dlock::{ErrorKind, HoldId, Key, LockKey, Registry};
use dlock_contract::{
    Attempt, Backend, BreakRecord, Claim, Hold, Inspect, Listing, Mode, Queue, Released, Signal, Standing,
};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::wait_until;
use futures::FutureExt;

use crate::kit::{Database, TTL, key, lines_of};
use crate::named::support::{take_soon, until};
use crate::named_kit::{Store, open, open_at};

row_cases! {
    readers_of_one_process_have_a_session_each_and_share_it_with_other_keys
    a_session_that_had_a_lock_in_one_mode_takes_it_in_each_other_mode
    a_reader_that_comes_while_a_writer_waits_stands_behind_it
    a_waiting_writer_and_waiting_readers_get_the_lock_in_turn
    tokens_rise_over_all_modes
    several_readers_are_listed_once_and_broken_one_by_one
    a_killed_reader_is_told_and_the_others_go_on
    rows_that_readers_left_are_swept_and_those_of_holders_are_not
    a_literal_number_is_shared_with_readers_of_other_programs
    a_call_with_a_mode_takes_advisory_locks
}

fn claim_as(database: &Database, text: &str, mode: Mode) -> Arc<Claim> {
    claim_on(&key(database, text), TTL, |claim| claim.mode = mode)
}

async fn take_as(store: &Store, database: &Database, text: &str, mode: Mode) -> Hold {
    take(store, &claim_as(database, text, mode)).await
}

async fn is_refused(store: &Store, claim: &Arc<Claim>) {
    let answer = store.try_acquire(claim, Queue::Leave).await.unwrap();
    assert!(matches!(answer, Attempt::Contended(_)), "{answer:?}");
}

/// The sessions that hold advisory locks of this mode, one line for each lock.
async fn holding(database: &Database, mode: &str) -> Vec<String> {
    database
        .lines(&format!(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = '{mode}' \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ))
        .await
}

async fn readers_of_one_process_have_a_session_each_and_share_it_with_other_keys(database: Database) {
    let store = open(&database).await;
    let mut holds = Vec::new();
    for text in ["a", "b", "c"] {
        for _ in 0..3 {
            holds.push(take_as(&store, &database, text, Mode::Read).await);
        }
    }
    holds.push(take_as(&store, &database, "d", Mode::Write).await);
    holds.push(take_as(&store, &database, "e", Mode::Exclusive).await);
    let (readers, alone) = (holding(&database, "ShareLock").await, holding(&database, "ExclusiveLock").await);
    assert_eq!((readers.len(), alone.len()), (9, 2), "a lock was asked for twice on one session");
    let sessions: HashSet<_> = readers.iter().chain(&alone).collect();
    assert_eq!(sessions.len(), 3, "{readers:?} {alone:?}");
    for hold in &holds {
        assert!(matches!(confirm(&store, hold).await, Standing::Renewed(_)));
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
        assert_eq!(store.release(hold).await.unwrap(), Released::NotOwner);
    }
    assert!(holding(&database, "ShareLock").await.is_empty() && holding(&database, "ExclusiveLock").await.is_empty());
}

/// The row of the hold before is still there, and is nobody's.
async fn a_session_that_had_a_lock_in_one_mode_takes_it_in_each_other_mode(database: Database) {
    let (store, other) = (open(&database).await, open(&database).await);
    let modes = [Mode::Exclusive, Mode::Read, Mode::Write, Mode::Exclusive, Mode::Write, Mode::Read, Mode::Exclusive];
    let (mut sessions, mut earlier) = (HashSet::new(), Vec::new());
    for mode in modes {
        let hold = take_as(&store, &database, "a", mode).await;
        sessions.extend(holding(&database, if mode == Mode::Read { "ShareLock" } else { "ExclusiveLock" }).await);
        let state = other.look(&hold.claim.key).await.unwrap();
        let ids: Vec<_> = state.holders.iter().map(|holder| holder.id.unwrap()).collect();
        assert_eq!(ids, [HoldId::of(&hold.claim.owner)], "{mode:?}");
        for id in &earlier {
            let broken = other.break_hold(&hold.claim.key, *id, &BreakRecord::new("alice", 17, "hangs")).await;
            assert!(!broken.unwrap(), "a hold of the past was found beside {mode:?}");
        }
        earlier.extend(ids);
        // Only the other family is a conflict.
        for asked in [Mode::Exclusive, Mode::Write] {
            let answer = other.try_acquire(&claim_as(&database, "a", asked), Queue::Leave).await;
            match asked.mixes_with(mode) {
                true => assert!(matches!(answer, Ok(Attempt::Contended(_))), "{asked:?} beside {mode:?}: {answer:?}"),
                false => assert_eq!(*answer.unwrap_err().kind(), ErrorKind::KeyConflict, "{asked:?} beside {mode:?}"),
            }
        }
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    }
    assert_eq!(sessions.len(), 1, "the session was not used again: nothing is proven");
}

async fn a_reader_that_comes_while_a_writer_waits_stands_behind_it(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let reader = take_as(&one, &database, "a", Mode::Read).await;
    let writer = claim_as(&database, "a", Mode::Write);
    let Attempt::Contended(wake) = other.try_acquire(&writer, until(TTL)).await.unwrap() else { panic!("two holders") };
    let writing = tokio::spawn(wake.signal.unwrap());
    database.until_one_waits().await;
    let late = claim_as(&database, "a", Mode::Read);
    is_refused(&one, &late).await;
    is_refused(&other, &late).await;
    assert_eq!(one.release(&reader).await.unwrap(), Released::Released);
    let Signal::Granted(hold) = writing.await.unwrap().unwrap() else { panic!("no lock") };
    is_refused(&one, &late).await;
    assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
    take(&one, &late).await;
}

async fn a_waiting_writer_and_waiting_readers_get_the_lock_in_turn(database: Database) {
    let store = Arc::new(open(&database).await);
    let writer = take_as(&store, &database, "a", Mode::Write).await;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let (store, claim) = (store.clone(), claim_as(&database, "a", Mode::Read));
        readers.push(tokio::spawn(async move {
            let Attempt::Contended(wake) = store.try_acquire(&claim, until(TTL)).await.unwrap() else {
                panic!("a reader beside a writer")
            };
            match wake.signal.unwrap().await.unwrap() {
                Signal::Granted(hold) => hold,
                Signal::Ask => panic!("no lock"),
            }
        }));
    }
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    wait_until("the readers wait", async || database.lines(waiting).await == ["4"]).await.unwrap();
    assert_eq!(store.release(&writer).await.unwrap(), Released::Released);
    let holds = futures::future::join_all(readers).await;
    let holds: Vec<_> = holds.into_iter().map(Result::unwrap).collect();
    assert_eq!(holding(&database, "ShareLock").await.len(), 4, "the readers did not get it together");
    let tokens: HashSet<_> = holds.iter().map(token).collect();
    assert!(tokens.len() == 4 && tokens.iter().all(|read| *read > token(&writer)), "{tokens:?}");
    for hold in &holds {
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
    }
}

async fn tokens_rise_over_all_modes(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut last = 0;
    for mode in [Mode::Read, Mode::Write, Mode::Exclusive, Mode::Read, Mode::Exclusive, Mode::Write] {
        // A server clock that was set back by a minute since the last grant.
        database.change("UPDATE dlock_named SET token = token + 60000000").await;
        for store in [&one, &other] {
            let hold = take_as(store, &database, "a", mode).await;
            assert!(token(&hold) > last, "{mode:?}: {} after {last}", token(&hold));
            last = token(&hold);
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        }
    }
}

async fn several_readers_are_listed_once_and_broken_one_by_one(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut holds = Vec::new();
    for store in [&one, &one, &other] {
        holds.push((store, take_as(store, &database, "a", Mode::Read).await));
    }
    let beside = take_as(&one, &database, "b", Mode::Read).await;
    let ids: Vec<_> = holds.iter().map(|(_, hold)| HoldId::of(&hold.claim.owner)).collect();
    let shown = async || {
        let state = other.look(&key(&database, "a")).await.unwrap();
        state.holders.iter().map(|holder| holder.id.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(shown().await, ids);
    let listed = other.list(&Listing::of(database.name.clone())).await.unwrap().locks;
    assert_eq!(listed, [key(&database, "a"), key(&database, "b")]);
    let record = BreakRecord::new("alice", 17, "hangs");
    assert!(other.break_hold(&key(&database, "a"), ids[0], &record).await.unwrap());
    assert_eq!(shown().await, ids[1..]);
    let broken = &holds[0].1;
    assert!(broken.session.as_ref().unwrap().ended().unwrap().now_or_never().is_some(), "the end was not told");
    assert_eq!(confirm(&one, broken).await, Standing::Lost);
    assert_eq!(one.record_of(broken).await.unwrap(), Some(record.clone()));
    assert!(!other.break_hold(&key(&database, "a"), ids[0], &record).await.unwrap(), "broken twice");
    for (store, hold) in &holds[1..] {
        assert!(matches!(confirm(*store, hold).await, Standing::Renewed(_)), "the break of one reader ended another");
        assert_eq!(store.record_of(hold).await.unwrap(), None);
    }
    assert!(
        matches!(confirm(&one, &beside).await, Standing::Renewed(_)),
        "the break ended another lock of the session"
    );
    is_refused(&other, &claim_as(&database, "a", Mode::Write)).await;
    for (store, hold) in &holds[1..] {
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
    }
    let writer = take_as(&other, &database, "a", Mode::Write).await;
    let id = HoldId::of(&writer.claim.owner);
    assert_eq!(shown().await, [id]);
    assert!(one.break_hold(&key(&database, "a"), id, &record).await.unwrap());
    assert_eq!(confirm(&other, &writer).await, Standing::Lost);
}

async fn a_killed_reader_is_told_and_the_others_go_on(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let killed = take_as(&one, &database, "a", Mode::Read).await;
    let [session] = &holding(&database, "ShareLock").await[..] else { panic!("one session") };
    let lives = take_as(&other, &database, "a", Mode::Read).await;
    database.kill(session.parse().unwrap()).await;
    tokio::time::timeout(Duration::from_secs(20), killed.session.as_ref().unwrap().ended().unwrap()).await.unwrap();
    assert_eq!(confirm(&one, &killed).await, Standing::Lost);
    assert_eq!(one.release(&killed).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(&other, &lives).await, Standing::Renewed(_)));
    is_refused(&one, &claim_as(&database, "a", Mode::Write)).await;
    assert_eq!(other.release(&lives).await.unwrap(), Released::Released);
    take_soon(&one, &claim_as(&database, "a", Mode::Write)).await;
}

async fn rows_that_readers_left_are_swept_and_those_of_holders_are_not(database: Database) {
    let store = open_at(&format!("{}?sweep_every=100ms&sweep_after=300ms", database.url())).await;
    let free = take_as(&store, &database, "free", Mode::Read).await;
    let held = [
        take_as(&store, &database, "read", Mode::Read).await,
        take_as(&store, &database, "written", Mode::Write).await,
    ];
    assert_eq!(store.release(&free).await.unwrap(), Released::Released);
    let rows = async |table: &str| database.lines(&format!("SELECT k FROM {table} WHERE k <> '' ORDER BY k")).await;
    for table in ["dlock_read_write", "dlock_named"] {
        wait_until("the free rows are swept", async || rows(table).await.len() == 2).await.unwrap();
        let names: Vec<_> = held.iter().map(|hold| hold.claim.key.as_str()).collect();
        assert_eq!(rows(table).await, names);
    }
    for hold in &held {
        assert_eq!(store.look(&hold.claim.key).await.unwrap().holders.len(), 1);
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
    }
    let again = take_as(&store, &database, "free", Mode::Read).await;
    assert!(token(&again) > token(&free), "a swept row forgot its token");
}

async fn a_literal_number_is_shared_with_readers_of_other_programs(database: Database) {
    let store = open_at(&format!("{}?keys=literal", database.url())).await;
    let mut conn = database.connect().await;
    for (text, number) in [("42", "42"), ("7,42", "7, 42")] {
        let literal = LockKey::new(&database.name, Key::text(text)).unwrap();
        let claim = |mode| claim_on(&literal, TTL, |claim| claim.mode = mode);
        let hold = take(&store, &claim(Mode::Read)).await;
        let tries = |word: &str| format!("SELECT pg_try_advisory_{word}({number})");
        assert_eq!(lines_of(&mut conn, &tries("lock")).await, ["f"], "{text}");
        assert_eq!(lines_of(&mut conn, &tries("lock_shared")).await, ["t"], "{text}");
        assert_eq!(store.look(&literal).await.unwrap().holders.len(), 1, "{text}");
        let error = store.try_acquire(&claim(Mode::Exclusive), Queue::Leave).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::KeyConflict, "{text}");
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        // Of the other program's hold dlock knows the mode, and not the family.
        is_refused(&store, &claim(Mode::Write)).await;
        is_refused(&store, &claim(Mode::Exclusive)).await;
        let hold = take(&store, &claim(Mode::Read)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(lines_of(&mut conn, &format!("SELECT pg_advisory_unlock_shared({number})")).await, ["t"]);
        let hold = take(&store, &claim(Mode::Write)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    }
}

async fn a_call_with_a_mode_takes_advisory_locks(database: Database) {
    let registry = Registry::new();
    registry.install("sql", open(&database).await).unwrap();
    let namespace = database.name.clone();
    registry.configure(|defaults| defaults.namespace = namespace.clone()).unwrap();
    let lock = |mode| registry.lock("a").ttl(TTL).mode(mode);
    let readers = [lock(Mode::Read).acquire().await.unwrap(), lock(Mode::Read).acquire().await.unwrap()];
    let error = lock(Mode::Write).try_acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
    let error = registry.lock("a").ttl(TTL).try_acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict, "an exclusive lock is the default");
    assert_eq!(registry.lock("a").holders().await.unwrap().holders.len(), 2);
    for reader in readers {
        reader.release().await.unwrap();
    }
    lock(Mode::Write).acquire().await.unwrap().release().await.unwrap();
}
