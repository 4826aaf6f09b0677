//! A host name that leads to another address after a failover. Each connect looks the name up, so no program has to be started
//! again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dlock::ErrorKind;
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::{HostName, Mode, Proxy, wait_until};

use super::kit::{Database, try_open};
use super::support::{attempt, is_refused};

row_cases! {
    a_host_name_is_looked_up_at_each_connect
}

/// The role of the child, and the name of a host that no resolver knows.
pub(crate) const ROLE: &str = "client of a host that moves";
const NAME: &str = "db.invalid";

const BEFORE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const AFTER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Longer than the test: the hold must outlive the failover.
const TTL: Duration = Duration::from_secs(600);
/// Only a hang comes near it.
const LIMIT: Duration = Duration::from_secs(120);

/// Both addresses lead to the same server. So the hold is still there after the failover.
async fn a_host_name_is_looked_up_at_each_connect(database: Database) {
    let (before, after) = both(database.addr());
    let name = HostName::new(NAME, BEFORE).unwrap();
    let url = database.url_at(before.port()).replace(&BEFORE.to_string(), NAME);
    let mut variables = vec![("URL", format!("{url}?tls=off"))];
    variables.extend(name.variables());
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut child = Child::spawn(ROLE, &variables).unwrap();
    let mut hears = |line: &str| tokio::task::block_in_place(|| child.wait_line(line, LIMIT)).unwrap();
    hears("held");
    assert_eq!(after.sent(), 0);
    before.set(Mode::Refuse);
    hears("outage");
    name.leads_to(AFTER).unwrap();
    hears("followed");
    // The child has ended, and its connections may have too.
    assert!(after.sent() > 0);
}

/// Two ways to a server, at the same port of two addresses.
fn both(server: SocketAddr) -> (Proxy, Proxy) {
    loop {
        let before = Proxy::start(server).unwrap();
        // Somebody may have this port at the other address.
        if let Ok(after) = Proxy::start_at((AFTER, before.port()).into(), server) {
            return (before, after);
        }
    }
}

/// The child's part.
pub(crate) fn child() {
    tokio::runtime::Runtime::new().unwrap().block_on(follow());
}

async fn follow() {
    let url = std::env::var("URL").unwrap();
    let store = try_open(&url).await.unwrap();
    let hold = take(&store, &claim("a", TTL)).await;
    println!("held");
    // One owner for all attempts: one of them may be done although its answer is lost.
    let asked = claim("b", TTL);
    let ask = async || match attempt(&store, &asked).await {
        Ok(hold) => Some(hold.expect("nobody else wants it")),
        Err(error) => {
            assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
            None
        }
    };
    wait_until("the server is out of reach", async || ask().await.is_none()).await.unwrap();
    println!("outage");
    wait_until("the pool connects to the new address", async || ask().await.is_some()).await.unwrap();
    // Renewals have a connection of their own, and so has a store that is opened now.
    let renewed = async || matches!(store.renew(&[&hold]).await[..], [Ok(Standing::Renewed(_))]);
    wait_until("renewals connect to the new address", renewed).await.unwrap();
    let opened = try_open(&url).await.unwrap();
    is_refused(&opened, &claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(store.release(&ask().await.unwrap()).await.unwrap(), Released::Released);
    println!("followed");
}
