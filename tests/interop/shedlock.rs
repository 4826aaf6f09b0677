//! Nodes of ShedLock's, in a JVM of their own, and ours on one table: each keeps the other out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use dlock::{Key, Registry, Wait};
use dlock_testkit::servers::{Instance, MariaDb, MySql, Postgres, Recipe};

use crate::foreign::built;
use crate::{LONG, MS, SECOND};

/// As ShedLock's README has it.
const ON_MYSQL: &str = "CREATE TABLE test.shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
    locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
const ON_POSTGRES: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
    locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

/// How ShedLock reads the time.
const MODES: [&str; 2] = ["database-time", "client-time"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shedlock_and_ours_on_postgres() {
    let server = Server::start(Postgres::default(), ON_POSTGRES, |port| {
        (format!("jdbc:postgresql://127.0.0.1:{port}/postgres"), "dlock")
    });
    all_of(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shedlock_and_ours_on_mysql() {
    let server = Server::start(MySql::default(), ON_MYSQL, |port| {
        // Without TLS this driver asks for the server's key, which has nothing to do with locks.
        (format!("jdbc:mysql://127.0.0.1:{port}/test?sslMode=DISABLED&allowPublicKeyRetrieval=true"), "root")
    });
    all_of(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shedlock_and_ours_on_mariadb() {
    let server =
        Server::start(MariaDb::default(), ON_MYSQL, |port| (format!("jdbc:mariadb://127.0.0.1:{port}/test"), "root"));
    all_of(&server).await;
}

async fn all_of(server: &Server) {
    for mode in MODES {
        let mut node = server.node(mode);
        let registry = server.registry().await;
        each_keeps_the_other_out(&mut node, &registry, &format!("{mode}-out")).await;
        a_time_that_a_lock_is_kept_counts_on_both_sides(&mut node, &registry, &format!("{mode}-kept")).await;
        a_late_unlock_frees_what_another_jvm_took_and_never_ours(server, &mut node, &registry, mode).await;
    }
    no_count_is_lost(server).await;
}

/// A server, and what its JDBC driver needs.
struct Server {
    instance: Instance,
    jdbc: String,
    user: &'static str,
}

impl Server {
    fn start(recipe: impl Recipe, table: &str, jdbc: impl FnOnce(u16) -> (String, &'static str)) -> Self {
        let instance = Instance::start(recipe).unwrap();
        instance.ask(table).unwrap();
        let (jdbc, user) = jdbc(instance.port());
        Self { instance, jdbc, user }
    }

    fn node(&self, mode: &str) -> Node {
        Node::start(&self.jdbc, self.user, mode)
    }

    async fn registry(&self) -> Registry {
        let registry = Registry::new();
        registry
            .connect("store", &format!("{}?layout=shedlock&shedlock_create=yes", self.instance.url()))
            .await
            .unwrap();
        registry.set_default("store").unwrap();
        registry
    }
}

fn lock(registry: &Registry, name: &str) -> dlock::Lock {
    registry.lock(Key::text("").value(name)).ttl(LONG)
}

async fn is_free(registry: &Registry, name: &str) -> bool {
    match lock(registry, name).wait(Wait::None).acquire().await {
        Ok(guard) => {
            guard.release().await.unwrap();
            true
        }
        Err(error) => {
            assert_eq!(*error.kind(), dlock::ErrorKind::Busy, "{error}");
            false
        }
    }
}

async fn each_keeps_the_other_out(node: &mut Node, registry: &Registry, name: &str) {
    // The first lock of a name is another statement of ShedLock's than the later ones.
    for _ in 0..2 {
        assert!(node.locks(name, LONG, Duration::ZERO));
        assert!(!is_free(registry, name).await, "two holders");
        node.extends(name, 2 * LONG);
        assert!(!is_free(registry, name).await, "two holders");
        node.unlocks(name);
        let guard = lock(registry, name).wait(Wait::None).acquire().await.unwrap();
        assert!(!node.locks(name, LONG, Duration::ZERO), "two holders");
        guard.release().await.unwrap();
    }
    // Ours waits for a Java node.
    assert!(node.locks(name, LONG, Duration::ZERO));
    let waits = lock(registry, name).wait(Wait::UpTo(LONG)).acquire();
    let unlocks = async {
        tokio::time::sleep(50 * MS).await;
        node.unlocks(name);
    };
    let (guard, ()) = tokio::join!(waits, unlocks);
    guard.unwrap().release().await.unwrap();
    // A node that has died: its lease ends.
    assert!(node.locks(name, SECOND, Duration::ZERO));
    lock(registry, name).wait(Wait::UpTo(LONG)).acquire().await.unwrap().release().await.unwrap();
}

async fn a_time_that_a_lock_is_kept_counts_on_both_sides(node: &mut Node, registry: &Registry, name: &str) {
    assert!(node.locks(name, LONG, LONG));
    node.unlocks(name);
    assert!(!is_free(registry, name).await, "lockAtLeastFor is not over");
    let ours = format!("{name}-ours");
    lock(registry, &ours).min_hold(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(!node.locks(&ours, LONG, Duration::ZERO), "min_hold is not over");
}

/// ShedLock knows a holder by the name of its host alone.
async fn a_late_unlock_frees_what_another_jvm_took_and_never_ours(
    server: &Server,
    node: &mut Node,
    registry: &Registry,
    mode: &str,
) {
    let (theirs, ours) = (format!("{mode}-theirs"), format!("{mode}-ours"));
    let mut late = server.node(mode);
    for name in [&theirs, &ours] {
        assert!(late.locks(name, 100 * MS, Duration::ZERO));
    }
    let end = Instant::now() + LONG;
    while !node.locks(&theirs, LONG, Duration::ZERO) {
        assert!(Instant::now() < end, "the lease of the first JVM never ended");
    }
    late.unlocks(&theirs);
    assert!(
        is_free(registry, &theirs).await,
        "ShedLock compares more than the host: backends/sql/shedlock.md says that it does not"
    );
    let guard = lock(registry, &ours).wait(Wait::UpTo(LONG)).acquire().await.unwrap();
    late.unlocks(&ours);
    assert!(!node.locks(&ours, LONG, Duration::ZERO), "a late unlock freed a hold of ours");
    guard.release().await.unwrap();
}

/// Tasks of both sides take one lock for some seconds. Each hold counts up a number by a read and a write.
async fn no_count_is_lost(server: &Server) {
    const SECONDS: u32 = 4;
    server.instance.ask(&server.table("CREATE TABLE {counted} (number BIGINT NOT NULL)")).unwrap();
    server.instance.ask(&server.table("INSERT INTO {counted} VALUES (0)")).unwrap();
    let mut nodes = [server.node(MODES[0]), server.node(MODES[0])];
    for node in &mut nodes {
        node.send(&format!("count counted counted {SECONDS} 2"));
    }
    let end = Instant::now() + SECOND * SECONDS;
    let ours = async || {
        let (registry, mut holds) = (server.registry().await, 0);
        while Instant::now() < end {
            if let Ok(guard) = lock(&registry, "counted").wait(Wait::None).acquire().await {
                server.count_up();
                guard.release().await.unwrap();
                holds += 1;
            }
            tokio::time::sleep(2 * MS).await;
        }
        holds
    };
    let (one, two) = futures::join!(ours(), ours());
    let theirs: Vec<u64> = nodes.iter_mut().map(|node| node.answer().parse().unwrap()).collect();
    println!("ours {one} and {two}, theirs {theirs:?}");
    assert!(one + two > 0 && theirs.iter().all(|holds| *holds > 0), "ours {one} and {two}, theirs {theirs:?}");
    assert_eq!(server.counted(), one + two + theirs.iter().sum::<u64>());
}

impl Server {
    fn table(&self, sql: &str) -> String {
        let schema = if self.jdbc.contains("postgresql") { "" } else { "test." };
        sql.replace("{counted}", &format!("{schema}counted"))
    }

    fn counted(&self) -> u64 {
        self.instance.ask(&self.table("SELECT number FROM {counted}")).unwrap().trim().parse().unwrap()
    }

    fn count_up(&self) {
        tokio::task::block_in_place(|| {
            let number = self.counted() + 1;
            self.instance.ask(&self.table(&format!("UPDATE {{counted}} SET number = {number}"))).unwrap();
        });
    }
}

/// The program in `tests/interop/shedlock`. It ends with its standard input.
struct Node {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Node {
    fn start(jdbc: &str, user: &str, mode: &str) -> Self {
        let tree = built("shedlock");
        let classes = format!("{0}/classes:{0}/lib/*", tree.root().display());
        let mut command = Command::new("java");
        command.args(["-cp", &classes, "Node", jdbc, user, mode]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (orders, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut node = Self { process, orders, answers };
        assert_eq!(node.answer(), "up", "the node did not start");
        node
    }

    fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the node failed; its error is above");
        line.trim().to_owned()
    }

    fn asked(&mut self, order: &str) -> String {
        self.send(order);
        tokio::task::block_in_place(|| self.answer())
    }

    fn locks(&mut self, name: &str, at_most: Duration, at_least: Duration) -> bool {
        self.asked(&format!("lock {name} {} {}", at_most.as_millis(), at_least.as_millis())) == "yes"
    }

    fn extends(&mut self, name: &str, at_most: Duration) {
        assert_eq!(self.asked(&format!("extend {name} {}", at_most.as_millis())), "yes");
    }

    fn unlocks(&mut self, name: &str) {
        assert_eq!(self.asked(&format!("unlock {name}")), "done");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
