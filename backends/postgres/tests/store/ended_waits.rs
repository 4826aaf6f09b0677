//! Ends by the server: of a wait in the moment in which it grants the lock (the statement fails, and the session has the lock),
//! and of a session whose end more than one request sees.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Mode, Released, Signal};
use dlock_testkit::Mode::Delay;
use dlock_testkit::Proxy;
use dlock_testkit::holds::{claim_on, take};

use crate::kit::{Database, TTL, key, lines_of};
use crate::named::support::until;
use crate::named_kit::{open, open_at, session_of};

row_cases! {
    a_wait_that_runs_out_as_the_lock_is_granted_holds_nothing
    a_wait_that_is_ended_as_the_lock_is_granted_holds_nothing
    a_release_beside_one_that_saw_the_session_end_is_no_good_one
}

/// Long enough for the signal that stops the waiter, on a busy machine.
const WAIT: Duration = Duration::from_secs(5);

async fn a_wait_that_runs_out_as_the_lock_is_granted_holds_nothing(database: Database) {
    for mode in [Mode::Exclusive, Mode::Read] {
        let granted_late = granted_late(&database, mode, None).await.unwrap();
        assert!(matches!(granted_late, Signal::Ask), "{granted_late:?}");
    }
}

async fn a_wait_that_is_ended_as_the_lock_is_granted_holds_nothing(database: Database) {
    for mode in [Mode::Exclusive, Mode::Read] {
        let granted_late = granted_late(&database, mode, Some("SELECT pg_cancel_backend($)")).await;
        assert!(granted_late.is_err(), "{granted_late:?}");
    }
}

/// The server's process of a waiter stands still while the lock becomes free and its wait ends, by the time or by this
/// statement.
async fn granted_late(database: &Database, mode: Mode, ends: Option<&str>) -> dlock::Result<Signal> {
    let (one, other) = (open(database).await, open(database).await);
    let claim = || claim_on(&key(database, "a"), TTL, |claim| claim.mode = mode);
    let writer = claim_on(&key(database, "a"), TTL, |claim| {
        claim.mode = if mode == Mode::Read { Mode::Write } else { mode };
    });
    let hold = take(&one, &writer).await;
    let wait = if ends.is_some() { TTL } else { WAIT };
    let wake = match other.try_acquire(&claim(), until(wait)).await.unwrap() {
        Attempt::Contended(wake) => wake.signal.unwrap(),
        answer => panic!("{answer:?}"),
    };
    let waiting = tokio::spawn(wake);
    database.until_one_waits().await;
    let waiting_for = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let waiter = &database.lines(waiting_for).await[0];
    let signal = async |name: &str| {
        database.change(&format!("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; kill -{name} {waiter}'")).await;
    };
    signal("STOP").await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(session_of(database, "a").await.map(|pid| pid.to_string()).as_ref(), Some(waiter), "it has no lock");
    match ends {
        Some(sql) => database.change(&sql.replace('$', waiter)).await,
        None => tokio::time::sleep(WAIT + Duration::from_millis(300)).await,
    }
    signal("CONT").await;
    let answer = waiting.await.unwrap();
    assert_eq!(session_of(database, "a").await, None, "a session has it for nobody");
    let next = take(&one, &claim()).await;
    assert_eq!(one.release(&next).await.unwrap(), Released::Released);
    answer
}

/// The server says that it ends the session, and lists it for a while after that: here it waits for a lock on a table that ends
/// with the session.
async fn a_release_beside_one_that_saw_the_session_end_is_no_good_one(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open_at(&url).await;
    database
        .change(
            "CREATE FUNCTION scratch() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN CREATE TEMP TABLE IF NOT EXISTS scratch (); RETURN NEW; END'; \
             CREATE TRIGGER scratch BEFORE INSERT ON dlock_named FOR EACH ROW EXECUTE FUNCTION scratch()",
        )
        .await;
    let one = take(&store, &database.claim("a", TTL)).await;
    let other = take(&store, &database.claim("b", TTL)).await;
    let session = session_of(&database, "a").await.unwrap();
    assert_eq!(session_of(&database, "b").await, Some(session), "they share no session, so nothing is proven");
    let mut somebody = database.connect().await;
    let of_session = "SELECT oid::regclass FROM pg_class WHERE relname = 'scratch'";
    let tables = lines_of(&mut somebody, of_session).await;
    lines_of(&mut somebody, &format!("BEGIN; LOCK TABLE {}", tables.join(", "))).await;
    // So that both releases are sent before the server's word is heard.
    proxy.set(Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(150) });
    database.kill(session).await;
    let released = tokio::join!(store.release(&one), store.release(&other));
    assert!(released.0.is_err() && released.1.is_err(), "{released:?}");
}
