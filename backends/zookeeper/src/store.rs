//! The store, and how it is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Durability, ErrorKind, Fencing, Profile, Result, WakeStyle};
use dlock_store::{Address, Clock, Opener, background, detached};
use zookeeper_client::{Client, CreateMode, Error as ClientError};

use crate::forms;
use crate::place::Shared;
use crate::queue::Layout;
use crate::server::cluster::{Cluster, FORM};
use crate::server::fault::fault;
use crate::server::paths::Paths;
use crate::session::Leases;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| Box::pin(open(address, clock)))
    .checked_by(|address| Cluster::of(address).map(drop));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(ZooKeeper::open_at(&address, clock).await?))
}

/// Locks in ZooKeeper.
pub struct ZooKeeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) profile: Profile,
    pub(crate) hosts: String,
}

impl ZooKeeper {
    /// Opens `zk://[user:password@]host[:port][,host[:port]…][/chroot]`; see `backends/zookeeper/README.md` for the options.
    ///
    /// # Errors
    /// A URL that cannot be read (the error never repeats it); no server that answers within 4 s; an account that is refused
    /// or lacks rights; a server that is read-only or older than 3.5.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        let named = address.clone();
        // This reads files, and a disk may hang. A store that is opened at its first use is opened on our thread.
        let cluster = background()?.run_blocking(move || Cluster::of(&named)).await??;
        let (paths, layout, acls) = (Paths::of(&cluster), cluster.layout, cluster.acls());
        let (hosts, literal, clock) = (cluster.hosts().to_owned(), cluster.literal, clock.clone());
        detached(async move {
            let (leases, client) = Leases::measure(cluster, &clock).await?;
            let shared = Shared::new(leases, paths, layout, acls);
            probe(&client, &shared).await?;
            forms::note(&client, &shared).await?;
            shared.leases.remember_ensemble(&client).await?;
            let profile = profile(&shared.leases, literal);
            Ok(Self { shared, profile, hosts })
        })
        .await
    }
}

fn profile(leases: &Leases, literal: bool) -> Profile {
    Profile::new("zookeeper", leases.range()).with(|zookeeper| {
        // Other holds in the same session keep it alive.
        zookeeper.expires_alone = false;
        zookeeper.fencing = Fencing::Monotonic;
        zookeeper.fair = true;
        zookeeper.read_write = true;
        // Foreign clients store their permits differently.
        zookeeper.permits = !literal;
        zookeeper.wake = WakeStyle::Grant;
        // Half a tick is added to the ttl, a member may report a session to the leader half a tick late, and the leader ends
        // sessions once per tick.
        zookeeper.takeover_delay = (leases.tick() * 2 + Duration::from_millis(500)).max(Duration::from_secs(2));
        zookeeper.durability = Durability::Consensus;
        zookeeper.any_key = !literal;
    })
}

/// Makes the chroot, and tests the rights that every lock with dlock's own names needs. With `keys=literal` the paths
/// depend on the locks, so only a majority is asked.
pub(crate) async fn probe(client: &Client, shared: &Shared) -> Result<()> {
    let root = shared.paths.root();
    let tried = async {
        // An account needs no right to the nodes above a chroot that is there.
        if !root.is_empty() && client.check_stat(root).await?.is_none() {
            client.mkdir(root, &CreateMode::Persistent.with_acls(shared.acls)).await?;
        }
        if shared.paths.is_literal() {
            return ask_majority(client, if root.is_empty() { "/" } else { root }).await;
        }
        match try_rights(client, shared).await {
            // The servers have swept the parent meanwhile, because it is empty.
            Err(ClientError::NoNode) => try_rights(client, shared).await,
            tried => tried,
        }
    };
    tried.await.map_err(|error| {
        let error = fault(&error);
        if *error.kind() != ErrorKind::PermissionDenied {
            return error;
        }
        dlock_contract::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "the account may not make, read and delete nodes below {root}/dlock, and every lock needs this: {}. Use the account that made them, or acl=open from the beginning",
                error.message()
            ),
        )
    })
}

/// Makes and deletes a node in one request, so that it leaves nothing and counts no sequence up: a readiness probe asks every
/// few seconds.
async fn try_rights(client: &Client, shared: &Shared) -> Result<(), ClientError> {
    let parent = shared.paths.probe();
    client.mkdir(&parent, &shared.parents()).await?;
    client.list_children(&parent).await?;
    let node = format!("{parent}/{:016x}", client.session_id().0);
    let mut writer = client.new_multi_writer();
    writer.add_create(&node, b"", &CreateMode::Ephemeral.with_acls(shared.acls))?;
    writer.add_delete(&node, None)?;
    writer.commit().await?;
    Ok(())
}

/// Sends a request that changes nothing and that a majority must confirm.
async fn ask_majority(client: &Client, root: &str) -> Result<(), ClientError> {
    let mut writer = client.new_multi_writer();
    writer.add_check_version(root, -1)?;
    match writer.commit().await.map_err(ClientError::from) {
        // An account that may not read this node may still take locks.
        Ok(_) | Err(ClientError::NoAuth) => Ok(()),
        Err(error) => Err(error),
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = if self.shared.layout == Layout::Kazoo { "kazoo" } else { "curator" };
        f.debug_struct("ZooKeeper").field("hosts", &self.hosts).field("layout", &layout).finish_non_exhaustive()
    }
}
