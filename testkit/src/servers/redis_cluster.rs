//! A Redis Cluster.

use std::collections::HashSet;
use std::{iter, thread};

use super::redis::{Make, Redis, wait_until_followed};
use super::redis_sentinel::reserve;
use super::{Certificates, Instance, free_port};
use crate::error::Context;
use crate::{Error, Proxy, Result, block_until};

/// As long as a busy machine may let a server wait for its turn; a failover takes about two seconds more. By default it is 15 s,
/// which would be in each test of a failover. The suite runs over a cluster with the default too.
const NODE_TIMEOUT_MS: &str = "2000";

/// Servers that share the slots, and replicas of the first of them.
pub struct RedisCluster {
    /// Primaries, and after them the replicas of the first one.
    pub nodes: Vec<Instance>,
    /// One in front of each node, if they were asked for: clients and nodes know only these.
    pub proxies: Vec<Proxy>,
    primaries: usize,
    /// Where all of them speak TLS with each other, and with clients on these ports.
    tls: Option<(Certificates, Vec<u16>)>,
}

impl RedisCluster {
    /// Starts it, and returns when all slots are served.
    pub fn start(primaries: usize, replicas: usize, behind_proxies: bool, options: &[&str]) -> Result<Self> {
        Self::of(&vec![Make::default(); primaries], replicas, behind_proxies, options, None)
    }

    /// The same of primaries of these makes.
    pub fn start_of(makes: &[Make], behind_proxies: bool) -> Result<Self> {
        Self::of(makes, 0, behind_proxies, &[], None)
    }

    /// The same with TLS everywhere; the ports of the instances stay plain.
    pub fn start_with_tls(primaries: usize, replicas: usize) -> Result<Self> {
        Self::of(&vec![Make::default(); primaries], replicas, false, &[], Some(Certificates::make()?))
    }

    fn of(
        makes: &[Make],
        replicas: usize,
        behind_proxies: bool,
        options: &[&str],
        certificates: Option<Certificates>,
    ) -> Result<Self> {
        let primaries = makes.len();
        let makes = makes.iter().copied().chain(iter::repeat_n(makes[0], replicas));
        let (mut nodes, mut proxies, mut doors) = (Vec::new(), Vec::new(), Vec::new());
        for make in makes {
            let (port, addr) = reserve();
            let bus = free_port().to_string();
            let mut all = vec!["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
            all.extend(["--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-port", &bus]);
            // By default a primary waits for 5 s for further replicas. That time is in each start, and in no test but one.
            all.extend(["--repl-diskless-sync-delay", "0"]);
            let announced;
            if behind_proxies {
                let proxy = Proxy::start(addr).context("a proxy")?;
                announced = proxy.port().to_string();
                all.extend(["--cluster-announce-port", &announced, "--cluster-announce-bus-port", &bus]);
                proxies.push(proxy);
            }
            all.extend(options);
            let mut recipe = Redis { make, ..Redis::with(&all) };
            if let Some(certificates) = &certificates {
                let door = free_port();
                recipe.extra.extend(certificates.options(door));
                recipe.extra.extend(["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned));
                doors.push(door);
            }
            nodes.push((Instance::start_on(recipe, port)?, bus));
        }
        for (number, (node, _)) in nodes.iter().enumerate() {
            node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
            if number < primaries {
                let (first, next) = (16_384 * number / primaries, 16_384 * (number + 1) / primaries);
                node.ask(&format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1))?;
            }
        }
        for (node, bus) in &nodes[1..] {
            nodes[0].0.ask(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port()))?;
        }
        let nodes = nodes.into_iter().map(|(node, _)| node).collect();
        let set = Self { nodes, proxies, primaries, tls: certificates.map(|certificates| (certificates, doors)) };
        set.wait_until_whole()?;
        let first = set.id(0)?;
        for replica in &set.nodes[primaries..] {
            block_until("a node has heard of its primary", || {
                replica.ask(&format!("CLUSTER REPLICATE {first}")).is_ok()
            })?;
        }
        wait_until_followed(&set.nodes[0], &set.nodes[primaries..])?;
        Ok(set)
    }

    /// The address as clients write it: all nodes.
    pub fn url(&self) -> String {
        let proxied = |number: usize| self.proxies.get(number).map_or(self.nodes[number].port(), Proxy::port);
        let ports: Vec<u16> = match &self.tls {
            Some((_, doors)) => doors.clone(),
            None => (0..self.nodes.len()).map(proxied).collect(),
        };
        let hosts = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        match &self.tls {
            Some((certificates, _)) => format!("rediss-cluster://{hosts}?{}", certificates.query()),
            None => format!("redis-cluster://{hosts}"),
        }
    }

    /// The name that a node has among the others.
    pub fn id(&self, node: usize) -> Result<String> {
        self.nodes[node].ask("CLUSTER MYID")
    }

    /// Which node has the slot of this key, as the first node that answers sees it.
    pub fn owner_of(&self, key: &str) -> Result<usize> {
        let slot: u32 = self.any(&format!("CLUSTER KEYSLOT {key}"))?.parse().map_err(|_| Error::new("no slot"))?;
        let listed = self.any("CLUSTER NODES")?;
        let has = |line: &str| {
            line.split(' ').skip(8).filter(|range| !range.starts_with('[')).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse::<u32>().is_ok_and(|first| first <= slot)
                    && last.parse::<u32>().is_ok_and(|last| slot <= last)
            })
        };
        let id = listed.lines().find(|line| has(line)).and_then(|line| line.split(' ').next());
        let id = id.ok_or_else(|| Error::new("nobody has the slot"))?;
        (0..self.nodes.len())
            .find(|node| self.id(*node).is_ok_and(|own| own == id))
            .ok_or_else(|| Error::new("the slot's node is down"))
    }

    /// One request to the node that has the key.
    pub fn ask_owner(&self, key: &str, request: &str) -> Result<String> {
        self.nodes[self.owner_of(key)?].ask(request)
    }

    /// Kills all nodes and starts them again, and returns when all slots are served.
    pub fn restart(&self) -> Result<()> {
        self.nodes.iter().try_for_each(Instance::kill9)?;
        thread::scope(|scope| {
            let starts: Vec<_> = self.nodes.iter().map(|node| scope.spawn(|| node.restart())).collect();
            starts.into_iter().try_for_each(|start| start.join().map_err(|_| Error::new("a start panicked"))?)
        })?;
        self.wait_until_whole()
    }

    /// Waits until every node that runs sees all slots served.
    pub fn wait_until_whole(&self) -> Result<()> {
        let whole = |node: &Instance| {
            node.ask("CLUSTER INFO").is_ok_and(|info| {
                info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_known_nodes:{}", self.nodes.len()))
                    && info.contains(&format!("cluster_size:{}", self.primaries))
            })
        };
        self.nodes
            .iter()
            .filter(|node| node.pid().is_some())
            .try_for_each(|node| block_until("a whole cluster", || whole(node)))
    }

    /// Waits until all nodes that run tell the same of who has which slots, and of their epochs.
    ///
    /// A slot that moves on before all have heard of its last move may be given two epochs that are equal: then a node may
    /// believe the older owner for good.
    pub fn wait_until_agreed(&self) -> Result<()> {
        block_until("nodes of one opinion", || {
            let mut views = self.nodes.iter().filter(|node| node.pid().is_some()).map(view);
            let first = views.next().flatten();
            first.is_some() && views.all(|view| view == first)
        })
    }

    /// Waits until this replica has everything that its primary has.
    pub fn wait_for_replica(&self, replica: usize, primary: usize) -> Result<()> {
        let offset = |node: usize| {
            let info = self.nodes[node].ask("INFO replication").ok()?;
            info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"))?.parse::<u64>().ok()
        };
        let wanted = offset(primary);
        block_until("a replica keeps up", || wanted.is_some() && offset(replica) >= wanted)
    }

    fn any(&self, request: &str) -> Result<String> {
        let mut answer = Err(Error::new("no node runs"));
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            answer = node.ask(request);
            if answer.is_ok() {
                break;
            }
        }
        answer
    }
}

/// The id, the epoch and the slots of each primary as a node tells them; nothing while two have one epoch.
fn view(node: &Instance) -> Option<Vec<String>> {
    let listed = node.ask("CLUSTER NODES").ok()?;
    let (mut told, mut epochs) = (Vec::new(), HashSet::new());
    for line in listed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, _, flags, _, _, _, epoch, _, slots @ ..] = &words[..] else { return None };
        if flags.contains("master") {
            // In brackets stands what only those tell from which a slot goes or to which it comes.
            let slots: Vec<_> = slots.iter().filter(|slot| !slot.starts_with('[')).copied().collect();
            told.push(format!("{id} {epoch} {}", slots.join(" ")));
            epochs.insert(*epoch);
        }
    }
    told.sort();
    (epochs.len() == told.len()).then_some(told)
}
