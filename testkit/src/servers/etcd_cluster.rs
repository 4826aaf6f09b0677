//! An etcd cluster of three members.

use super::etcd_peers::Peers;
use super::{Etcd, Instance, free_port};
use crate::{Error, Result, block_until};

const MEMBERS: usize = 3;

/// Three members, with doors between them.
pub struct EtcdCluster {
    /// The members.
    pub members: Vec<Instance>,
    peers: Peers,
}

impl EtcdCluster {
    /// Starts it, and returns when it has a leader.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same, with more options on each member's command line.
    pub fn start_with(more: &[&str]) -> Result<Self> {
        let ports: Vec<u16> = (0..MEMBERS).map(|_| free_port()).collect();
        let peers = Peers::start(&ports)?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<_> = peers.ports().iter().enumerate().map(|(at, port)| format!("m{at}={}", url(*port))).collect();
        let all = all.join(",");
        let recipes = ports.iter().zip(peers.ports()).enumerate().map(|(at, (port, door))| {
            let name = format!("m{at}");
            let options = [
                ("--name", name.as_str()),
                ("--initial-cluster", &all),
                ("--initial-advertise-peer-urls", &url(*door)),
                ("--listen-peer-urls", &url(*port)),
            ];
            let own = options.iter().flat_map(|(option, value)| [*option, *value]);
            let extra = own.chain(more.iter().copied()).map(str::to_owned).collect();
            Etcd { peer_port: *port, extra }
        });
        let members = Instance::start_all(recipes.collect::<Vec<_>>())?;
        let cluster = Self { members, peers };
        let names = (0..MEMBERS).map(|at| Ok((format!("{:x}", cluster.status(at, "member_id")?), at)));
        cluster.peers.name(names.collect::<Result<_>>()?);
        Ok(cluster)
    }

    /// The address as clients write it.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(|member| member.addr().to_string()).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// The member that leads, by the word of one that runs.
    pub fn leader(&self) -> Option<usize> {
        let leader = (0..MEMBERS).find_map(|at| self.status(at, "leader").ok().filter(|leader| *leader != 0))?;
        (0..MEMBERS).find(|at| self.status(*at, "member_id").is_ok_and(|id| id == leader))
    }

    /// Waits until another member than this one leads.
    pub fn wait_for_other_leader(&self, than: usize) -> Result<usize> {
        let mut leader = None;
        block_until("another leader", || {
            let others = (0..MEMBERS).filter(|at| *at != than);
            let led = |at: usize| self.status(at, "leader").ok().filter(|id| *id != 0);
            let told = others.filter_map(led).next();
            leader = told.and_then(|id| {
                (0..MEMBERS).find(|at| *at != than && self.status(*at, "member_id").is_ok_and(|own| own == id))
            });
            leader.is_some()
        })?;
        leader.ok_or_else(|| Error::new("the leader has gone again"))
    }

    /// Cuts one member off from the others, or nobody. Clients still reach all of them.
    pub fn cut_off(&self, member: Option<usize>) {
        self.peers.cut(member);
    }

    /// Starts those members again that do not run.
    pub fn restart_missing(&self) -> Result<()> {
        Instance::restart_all(self.members.iter().filter(|member| member.pid().is_none()))
    }

    /// A number that a member tells of itself.
    fn status(&self, at: usize, field: &str) -> Result<u64> {
        let answer = self.members[at].ask("/v3/maintenance/status {}")?;
        let after = answer.split_once(&format!("\"{field}\":\"")).map(|(_, after)| after);
        let number = after.and_then(|after| after.split('"').next()).and_then(|number| number.parse().ok());
        // A member without a leader leaves the field out.
        Ok(number.unwrap_or(0))
    }
}
