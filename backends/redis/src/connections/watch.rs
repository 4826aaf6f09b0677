//! Listens to the sentinels: when another server becomes the primary, all connections to the old one are dropped, also where
//! that one goes on serving because it has not heard of it.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::SendError;
use ::redis::{PushInfo, PushKind};
use dlock_contract::{Error, Result};
use dlock_store::background;
use tokio::sync::{oneshot, watch};

use crate::connections::pool::Connections;
use crate::socket::options::{OPEN_LIMIT, config};
use crate::socket::server::Server;
use crate::topology::sentinel::Sentinels;
use crate::topology::target::Plan;

/// How long to wait before a sentinel that has hung up is asked again.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Listens to the sentinels for as long as it lives.
pub(crate) struct Watch {
    _end: watch::Sender<()>,
}

impl Watch {
    /// Begins to listen, if there are sentinels.
    pub(crate) fn start(connections: &Arc<Connections>) -> Result<Option<Self>> {
        let Plan::Sentinel(sentinels) = &connections.target.plan else { return Ok(None) };
        let thread = background()?;
        let end = watch::Sender::new(());
        for number in 0..sentinels.sentinels.len() {
            let (connections, mut ended) = (connections.clone(), end.subscribe());
            thread.spawn(async move {
                tokio::select! {
                    () = listen(&connections, number) => {}
                    _ = ended.changed() => {}
                }
            });
        }
        Ok(Some(Self { _end: end }))
    }
}

async fn listen(connections: &Connections, number: usize) {
    let Plan::Sentinel(sentinels) = &connections.target.plan else { return };
    let Some(sentinel) = sentinels.sentinels.get(number) else { return };
    let mut pause = RETRY_PAUSES.0;
    loop {
        if hear(connections, sentinels, sentinel).await {
            pause = RETRY_PAUSES.0;
        }
        connections.clock.sleep_until(connections.clock.now().after(pause)).await;
        pause = (pause * 2).min(RETRY_PAUSES.1);
    }
}

/// Hears one sentinel out, until it hangs up; false if it could not be reached.
async fn hear(connections: &Connections, sentinels: &Sentinels, sentinel: &Server) -> bool {
    // Counts the news. It ends when the sender is dropped.
    let (sender, mut news) = watch::channel(0_u64);
    let (hung_up, mut end) = oneshot::channel::<()>();
    let hung_up = std::sync::Mutex::new(Some(hung_up));
    let pushes = move |push: PushInfo| {
        match push.kind {
            PushKind::Message => sender.send_modify(|told| *told += 1),
            PushKind::Disconnection => drop(hung_up.lock().map(|mut sender| sender.take())),
            _ => {}
        }
        Ok::<(), SendError>(())
    };
    let open = async {
        let mut wire = sentinel.open(config().set_push_sender(pushes)).await?;
        wire.client.subscribe("+switch-master").await.map_err(|error| wire.fault(&error))?;
        Ok::<_, Error>(wire)
    };
    let limit = connections.clock.now().after(OPEN_LIMIT);
    let Some(Ok(_wire)) = connections.clock.timeout_at(limit, open).await else { return false };
    loop {
        // Also once at the beginning: news that came while nobody listened is lost.
        if let Ok(primary) = sentinels.primary(&connections.clock).await {
            connections.follow(&primary);
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return true },
            _ = &mut end => return true,
        }
    }
}
