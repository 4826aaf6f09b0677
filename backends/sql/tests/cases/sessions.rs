//! Sessions that the server ends: by an operator, or with the server itself.

use dlock::ErrorKind;
use dlock_contract::{Backend, Keeps, Released, Standing};
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::servers::Instance;
use dlock_testkit::{Proxy, a_closed_store_opens_nothing};

use super::kit::{Database, TTL, try_open};
use super::support::{attempt, is_refused};

row_cases! {
    a_session_that_an_operator_ends_between_two_requests_costs_no_request
    a_session_that_an_operator_ends_while_it_is_idle_costs_no_request
    a_store_that_was_closed_opens_nothing
}

cases_with_own_server! {
    a_server_that_is_killed_and_started_again_keeps_the_holds_and_its_tokens_rise
}

async fn a_session_that_an_operator_ends_between_two_requests_costs_no_request(database: Database) {
    let store = database.store().await;
    let mut last = 0;
    for round in 0..8 {
        let claim = database.claim("a", TTL);
        let hold = take(&store, &claim).await;
        assert!(token(&hold) > last);
        last = token(&hold);
        // At once, so that no connection is asked first whether it still lives.
        assert!(database.end_sessions().await > 0, "round {round}: there was no session");
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "round {round}");
        is_refused(&store, &database.claim("a", TTL)).await;
        database.end_sessions().await;
        assert_eq!(token(&take(&store, &claim).await), last, "round {round}: asked again");
        database.end_sessions().await;
        let ended = if round % 2 == 0 { store.release(&hold).await } else { store.keep(&hold, TTL / 1000, None).await };
        assert_eq!(ended.unwrap(), Released::Released, "round {round}");
        database.end_sessions().await;
        store.abandon(&claim).await.unwrap();
        database.end_sessions().await;
        store.ready().await.unwrap();
        database.change(super::support::EXPIRE).await;
    }
}

async fn a_store_that_was_closed_opens_nothing(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    a_closed_store_opens_nothing(&try_open(&url).await.unwrap(), &[proxy], &database.claim("a", TTL)).await;
}

async fn a_session_that_an_operator_ends_while_it_is_idle_costs_no_request(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    for _ in 0..3 {
        database.end_sessions().await;
        // Longer than `PING_AFTER_SILENCE`, so that the next use pings first. No event tells when that time is over.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        store.ready().await.unwrap();
        assert!(store.look(&hold.claim.key).await.unwrap().note().is_some());
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    }
}

async fn a_server_that_is_killed_and_started_again_keeps_the_holds_and_its_tokens_rise(
    server: Instance,
    database: Database,
) {
    let store = database.store().await;
    let mut last = 0;
    for round in 0..2 {
        let (hold, freed) = (take(&store, &database.claim("a", TTL)).await, database.claim("freed", TTL));
        store.release(&take(&store, &freed).await).await.unwrap();
        server.kill9().unwrap();
        let error = attempt(&store, &database.claim("b", TTL)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "round {round}: {error}");
        let error = store.renew(&[&hold]).await.remove(0).unwrap_err();
        assert!(error.is_retryable(), "round {round}: {error}");
        let restarting = &server;
        tokio::task::block_in_place(|| restarting.restart()).unwrap();
        is_refused(&store, &database.claim("a", TTL)).await;
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "round {round}: lost by the restart");
        assert_eq!(token(&take(&store, &hold.claim).await), token(&hold));
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert!(token(&hold) > last && token(&take(&store, &freed).await) > last);
        store.abandon(&freed).await.unwrap();
        last = token(&hold);
    }
}
