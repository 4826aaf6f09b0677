//! Three servers that agree.

use dlock_testkit::servers::Consul;

/// Servers that find each other by gossip.
pub(crate) fn three() -> Vec<Consul> {
    let servers: Vec<_> = (0..3).map(|_| Consul::default()).collect();
    let gossip: Vec<_> = servers.iter().map(|server| server.gossip_port).collect();
    let recipes = servers.into_iter().enumerate().map(|(at, mut server)| {
        server.extra = vec!["-bootstrap-expect=3".into(), format!("-node=n{at}"), "-retry-interval=1s".into()];
        server.extra.extend(gossip.iter().map(|port| format!("-retry-join=127.0.0.1:{port}")));
        server
    });
    recipes.collect()
}
