//! Opens a session on the first server that answers, and finds out why none does.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::Clock;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;
use zookeeper_client::{Client, Error as ClientError};

use crate::server::cluster::{Cluster, ConnectError};
use crate::server::fault::fault;

/// How long the opening of a session may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
/// A try that lasts longer gets another one beside it. The client library tries the hosts in random order, so one try may
/// meet the same silent host several times in a row.
const SECOND_TRY: Duration = Duration::from_millis(750);
/// The pause before a member that did not answer is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// An opening asks the servers for the reason after this time, or after the first try that fails. After each failed try
/// it waits for the answer, at most for this time.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

/// Opens a session. It must run on our thread, because the client library spawns its tasks on the current runtime.
pub(super) async fn connect(cluster: &Cluster, clock: &Clock, timeout: Duration) -> Result<Client> {
    let end = clock.now().after(OPEN_TIMEOUT);
    let (failed, soon) = (Notify::new(), clock.now().after(REASON_TIMEOUT));
    let reason = async {
        let _ = clock.timeout_at(soon, failed.notified()).await;
        Some(Arc::new(cluster.tls_failure().await?))
    };
    let reason = reason.shared();
    let tries = async {
        let mut last = None;
        while clock.now().after(OPEN_TIMEOUT / 2) <= end {
            match clock.timeout_at(end, try_hosts(cluster, clock, timeout)).await {
                Some(Ok(client)) => return Ok(client),
                Some(Err(ConnectError::Wrong(error))) => return Err(error),
                Some(Err(ConnectError::Failed(error))) if fault(&error).is_retryable() => last = Some(error),
                Some(Err(ConnectError::Failed(error))) => return Err(fault(&error).never_sent()),
                None => break,
            }
            failed.notify_one();
            let looks_until = clock.now().after(REASON_TIMEOUT).min(end);
            if let Some(Some(reason)) = clock.timeout_at(looks_until, reason.clone()).await {
                // Another try would fail in the same way.
                return Err(reason.again().never_sent());
            }
            clock.sleep_until(clock.now().after(RETRY_PAUSE).min(end)).await;
        }
        match clock.timeout_at(end, reason.clone()).await {
            Some(Some(reason)) => Err(reason.again().never_sent()),
            _ => Err(unopened(last).never_sent()),
        }
    };
    // Asks for the reason beside the tries. Otherwise a silent server that comes first would leave no time to ask the
    // server that refuses.
    let beside = async {
        reason.clone().await;
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        opened = tries => opened,
        never = beside => match never {},
    }
}

/// One try, and others beside it while it gets no answer.
async fn try_hosts(cluster: &Cluster, clock: &Clock, timeout: Duration) -> Result<Client, ConnectError> {
    let mut tries = FuturesUnordered::from_iter([cluster.connect(timeout)]);
    loop {
        let next = clock.now().after(SECOND_TRY);
        match clock.timeout_at(next, tries.next()).await {
            Some(Some(Err(ConnectError::Failed(error)))) if fault(&error).is_retryable() && !tries.is_empty() => {}
            Some(Some(answer)) => return answer,
            Some(None) | None => tries.push(cluster.connect(timeout)),
        }
    }
}

fn unopened(last: Option<ClientError>) -> Error {
    match last {
        Some(error) => Error::outage(format!("no ZooKeeper server opened a session: {error}")),
        None => Error::outage(format!("no ZooKeeper server opened a session: none answered within {OPEN_TIMEOUT:?}")),
    }
}
