//! `fair` in the whole cluster: two real processes, each with several callers, on Redis.

use std::env;
use std::sync::Mutex;
use std::time::Instant;

use dlock::{Error, ErrorKind, distributed_lock};
use dlock_testkit::child::{Child, role};
use dlock_testkit::servers::shared;
use futures::future::join_all;

use crate::stores::{LONG, MS, Other, installed, namespace, on_each, soon, until_in_line};

#[distributed_lock(key = "fair:cluster", fair, wait = "60s", fence = token, backend = "redis")]
async fn in_order() -> Result<u64, Error> {
    Ok(token.get())
}

#[distributed_lock(keys = ["fair:keys:<n>", "fair:keys:all"], fair, wait = "20s", backend = store)]
async fn several(store: &str, n: u8, order: &Mutex<Vec<u8>>) -> Result<(), Error> {
    order.lock().unwrap().push(n);
    Ok(())
}

/// The other process: one caller for each word that comes.
pub(crate) fn child() {
    let Some(role) = role() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let namespace = env::var("NAMESPACE").unwrap();
        dlock::configure(|defaults| defaults.namespace = namespace).unwrap();
        let url = shared().redis().unwrap();
        dlock::connect("redis", &url).await.unwrap();
        let client = redis::Client::open(url).unwrap();
        let mut words = client.get_multiplexed_async_connection().await.unwrap();
        say(&format!("ready {role}"));
        let mut callers = tokio::task::JoinSet::new();
        loop {
            let word: Option<String> = redis::cmd("LPOP").arg(&role).query_async(&mut words).await.unwrap();
            match word.as_deref() {
                Some("end") => break,
                Some(name) => {
                    let name = name.to_owned();
                    callers.spawn(async move {
                        let mut call = Box::pin(in_order());
                        // After one poll a caller has asked, or waits behind another caller of this process.
                        assert!(futures::poll!(&mut call).is_pending());
                        say(&format!("asked {name}"));
                        say(&format!("token {name} {}", call.await.unwrap()));
                    });
                }
                None => tokio::time::sleep(5 * MS).await,
            }
        }
        while let Some(end) = callers.join_next().await {
            end.unwrap();
        }
    });
}

#[allow(clippy::print_stdout, reason = "processes talk to each other by their output")]
fn say(line: &str) {
    println!("{line}");
}

/// A process with callers.
struct Process {
    child: Child,
    name: String,
}

impl Process {
    fn start(name: &str) -> Self {
        let name = format!("{}:{name}", namespace());
        let mut child = Child::spawn(&name, &[("NAMESPACE", namespace())]).unwrap();
        child.wait_line("ready", LONG).unwrap();
        Self { child, name }
    }

    fn tell(&self, word: &str) {
        let _: u32 = redis::cmd("RPUSH").arg(&self.name).arg(word).query(&mut server()).unwrap();
    }

    /// One caller more, which has asked when this returns.
    fn calls(&mut self, caller: &str) {
        self.tell(caller);
        assert_eq!(self.child.wait_line("asked ", LONG).unwrap(), caller);
    }

    fn ends(mut self) {
        self.tell("end");
        assert!(self.child.wait(LONG).unwrap().success());
    }

    fn token(&mut self, caller: &str) -> u64 {
        self.child.wait_line(&format!("token {caller} "), LONG).unwrap().parse().unwrap()
    }
}

fn server() -> redis::Connection {
    redis::Client::open(shared().redis().unwrap()).unwrap().get_connection().unwrap()
}

/// Waits until the queue in the server has this many waiters.
fn stand(places: usize) {
    let end = Instant::now() + LONG;
    let mut server = server();
    let names = format!("*{}:fair:cluster*", namespace());
    loop {
        let keys: Vec<String> = redis::cmd("KEYS").arg(&names).query(&mut server).unwrap();
        let lines = keys.iter().filter_map(|key| redis::cmd("ZCARD").arg(key).query::<usize>(&mut server).ok());
        if lines.sum::<usize>() == places {
            return;
        }
        assert!(Instant::now() < end, "{places} places in {keys:?}");
        std::thread::sleep(5 * MS);
    }
}

#[tokio::test]
async fn callers_of_two_processes_are_served_in_the_order_in_which_they_came() {
    installed();
    let other = Other::holds_fairly("redis", "fair:cluster").await;
    let start = tokio::task::spawn_blocking(|| {
        let (mut one, mut two) = (Process::start("one"), Process::start("two"));
        // Two callers of one process before one of the other, which must not come in between.
        one.calls("a");
        stand(1);
        one.calls("b");
        stand(2);
        two.calls("c");
        stand(3);
        one.calls("d");
        stand(4);
        (one, two)
    });
    let (mut one, mut two) = start.await.unwrap();
    other.releases().await;
    let tokens = [one.token("a"), one.token("b"), two.token("c"), one.token("d")];
    assert!(tokens.is_sorted(), "{tokens:?}");
    for process in [one, two] {
        process.ends();
    }
}

#[tokio::test]
async fn fair_callers_with_several_keys_are_served_in_order_too() {
    on_each(async |store| {
        if store == "sqlite" {
            let refused = several(store, 1, &Mutex::default()).await.unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::Unsupported { .. }));
            return;
        }
        let order = Mutex::default();
        let other = Other::holds_fairly(store, "fair:keys:all").await;
        let waiting = join_all((0..5).map(|n| several(store, n, &order)));
        let release = async {
            until_in_line(store, "fair:keys:all", 5).await;
            other.releases().await;
        };
        let (ends, ()) = soon(async { tokio::join!(waiting, release) }).await;
        ends.into_iter().for_each(|end| end.unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    })
    .await;
}
