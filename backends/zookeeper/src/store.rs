//! The store, and how it is opened.

use std::fmt;
use std::sync::Arc;

use dlock_contract::engine::background;
use dlock_contract::{
    Address, Backend, Clock, Durability, ErrorKind, Fencing, Opener, Profile, Result, TtlRange, WakeStyle,
};
use zookeeper_client::{Client, CreateMode, Error as ClientError};

use crate::cluster::{Cluster, FORM};
use crate::core::Core;
use crate::fault::fault;
use crate::line::Layout;
use crate::paths::Paths;
use crate::session::Leases;
use crate::task::to_its_end;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| Box::pin(open(address, clock)));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(ZooKeeper::open_at(&address, clock).await?))
}

/// Locks in ZooKeeper.
pub struct ZooKeeper {
    pub(crate) core: Arc<Core>,
    pub(crate) profile: Profile,
    hosts: String,
}

impl ZooKeeper {
    /// Opens `zk://[user:password@]host[:port][,host[:port]…][/chroot]`; see `docs/backends.md` for the options.
    ///
    /// # Errors
    /// A URL that cannot be read, which is never echoed; no server that answers within some seconds; an account that is
    /// refused or lacks rights; a server that is read-only or older than 3.5.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        background()?;
        let cluster = Cluster::of(address)?;
        let (paths, layout, acls) = (Paths::of(&cluster), cluster.layout, cluster.acls());
        let (hosts, literal, clock) = (cluster.hosts().to_owned(), cluster.literal, clock.clone());
        to_its_end(async move {
            let (leases, client) = Leases::measure(cluster, &clock).await?;
            let core = Core::new(leases, paths, layout, acls);
            probe(&client, &core, literal).await?;
            let profile = profile(core.leases.range(), literal);
            Ok(Self { core, profile, hosts })
        })
        .await
    }
}

fn profile(ttl: TtlRange, literal: bool) -> Profile {
    Profile::new("zookeeper", ttl).with(|zookeeper| {
        // Others in the same session keep it alive.
        zookeeper.expires_alone = false;
        zookeeper.fencing = Fencing::Monotonic;
        zookeeper.fair = true;
        zookeeper.read_write = true;
        // Other tools keep their permits in other ways.
        zookeeper.permits = !literal;
        zookeeper.wake = WakeStyle::Grant;
        // The leader ends sessions once in a tick, and the shortest session has two ticks, unless the servers say
        // otherwise. A session is longer than its ttl by a quarter of the shortest one.
        zookeeper.takeover_delay = ttl.min.max(std::time::Duration::from_secs(2));
        zookeeper.durability = Durability::Consensus;
        zookeeper.any_key = !literal;
    })
}

/// Makes the chroot, and tries the rights that every lock of our own names needs. Under the names of other tools, the
/// paths are known at the locks only.
async fn probe(client: &Client, core: &Core, literal: bool) -> Result<()> {
    let (root, probe) = (core.paths.root(), core.paths.probe());
    let tried = async {
        if !root.is_empty() {
            client.mkdir(root, &CreateMode::Persistent.with_acls(core.acls)).await?;
        }
        if literal {
            return Ok(());
        }
        client.mkdir(&probe, &core.parents()).await?;
        let prefix = format!("{probe}/n-");
        let options = CreateMode::EphemeralSequential.with_acls(core.acls);
        let (_, sequence) = client.create(&prefix, b"", &options).await?;
        client.list_children(&probe).await?;
        client.delete(&format!("{prefix}{sequence}"), None).await
    };
    let tried: std::result::Result<(), ClientError> = tried.await;
    tried.map_err(|error| {
        let error = fault(&error);
        if *error.kind() != ErrorKind::PermissionDenied {
            return error;
        }
        dlock_contract::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "the account may not make, read and delete nodes below {root}/dlock, and every lock needs this: {}",
                error.message()
            ),
        )
    })
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = if self.core.layout == Layout::Kazoo { "kazoo" } else { "curator" };
        f.debug_struct("ZooKeeper").field("hosts", &self.hosts).field("layout", &layout).finish_non_exhaustive()
    }
}
