//! `on_outage` and `retry`: a store that does not answer.

use dlock::{Error, ErrorKind, Outcome, distributed_lock};
use dlock_testkit::servers::{self, Instance};

use crate::stores::{DOWN, DOWN_TOO, MS, installed, soon};

#[distributed_lock(key = "outage", retry = false, backend = store)]
async fn default(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "outage", retry = false, on_outage = error, backend = "down")]
async fn error() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "outage", retry = false, on_outage = skip, backend = "down")]
async fn skip() -> Option<u8> {
    Some(1)
}

#[distributed_lock(key = "outage", retry = false, on_outage = skip, backend = "down")]
async fn skip_and_say_so() -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

#[distributed_lock(key = "outage", retry = false, on_busy = skip, backend = "down")]
async fn skips_the_other() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "outage", retry = false, backend = "down")]
async fn outcome() -> Outcome<()> {
    ().into()
}

#[distributed_lock(key = "outage", retry = "2, 1ms..2ms", backend = store)]
async fn thrice(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "outage", backend = store)]
async fn default_retry(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "restart", wait = "20s", retry = "1000, 20ms..50ms", backend = store)]
async fn patient(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "restart", wait = "20s", retry = false, backend = store)]
async fn impatient(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn an_outage_is_an_error_unless_on_outage_is_skip() {
    installed();
    for end in [default(DOWN).await, error().await, skips_the_other().await] {
        let error = end.unwrap_err();
        assert_eq!((error.kind(), error.backend()), (&ErrorKind::Outage, Some(DOWN)));
    }
    assert_eq!(skip().await, None);
    // Here an error could be told from it.
    assert_eq!(skip_and_say_so().await.unwrap(), None);
    assert!(matches!(outcome().await, Outcome::Outage(_)));
}

#[tokio::test]
async fn a_store_that_fails_is_asked_as_often_as_retry_says() {
    installed();
    let [one, two, three] = DOWN_TOO;
    for (end, attempts) in [(default(one).await, 1), (thrice(two).await, 3), (default_retry(three).await, 4)] {
        let error = end.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, attempts));
    }
}

#[tokio::test]
async fn a_call_that_retries_outlasts_a_restart_of_the_store() {
    let server = Instance::start(servers::Redis::default()).unwrap();
    dlock::connect("restarted", &format!("{}?restart_guard=off&failover_guard=off", server.url())).await.unwrap();
    server.kill9().unwrap();
    assert_eq!(*impatient("restarted").await.unwrap_err().kind(), ErrorKind::Outage);
    let restart = tokio::task::spawn_blocking(move || {
        std::thread::sleep(200 * MS);
        server.restart().unwrap();
        server
    });
    let (end, server) = soon(async { tokio::join!(patient("restarted"), restart) }).await;
    end.unwrap();
    drop(server.unwrap());
}
