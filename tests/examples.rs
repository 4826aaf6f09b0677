//! The examples keep their promises, and the flash sale's judge is no friend of the shop.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may stop at the first surprise, as the tests may"
)]

#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../examples/flash_sale/shop.rs"]
mod shop;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;

use dlock_testkit::servers::shared;
use shop::Shop;
use sqlx::Connection;

/// Runs an example to its end. `cargo test` builds them all; with `--test examples` alone, what lies there is run.
fn run(name: &str, args: &[&str]) -> Output {
    let tests = std::env::current_exe().expect("this program");
    let folder = tests.ancestors().nth(2).expect("the folder of the build").join("examples");
    let program: PathBuf = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        cargo.args(["build", "--quiet", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
        assert!(cargo.args(["--profile", profile, "--example", name]).status().expect("cargo").success());
    }
    Command::new(program).args(args).output().expect("the example starts")
}

/// All that it printed, the reason of a failure first.
fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stderr[..], &output.stdout[..]].concat()).into_owned()
}

/// The two figures in a line of the table: without and with the lock.
fn figures(text: &str, name: &str) -> [u32; 2] {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in:\n{text}"));
    let figures: Vec<u32> = line.split_whitespace().map(|figure| figure.parse().expect("a number")).collect();
    figures.try_into().expect("two figures")
}

#[test]
fn the_flash_sale_oversells_without_the_lock_and_not_with_it() {
    let output = run("flash_sale", &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let [without, with] = figures(&text, "sold ");
    assert!(without > 100, "{text}");
    assert_eq!(with, 100, "{text}");
    assert_eq!(figures(&text, "oversold "), [without - 100, 0], "{text}");
    assert_eq!(figures(&text, "found it sold out ")[1], 900, "{text}");
    for name in ["acquisitions/s", "wait p50", "wait p99"] {
        assert!(text.contains(name), "{text}");
    }
}

/// A small sale with the lock in each of these stores.
fn sells_out(urls: &[String]) {
    for url in urls {
        let output = run("flash_sale", &["--workers", "2", "--buyers", "30", "--stock", "10", "--url", url]);
        let text = text(&output);
        assert!(output.status.success(), "{url}: {text}");
        assert_eq!(figures(&text, "sold ")[1], 10, "{url}: {text}");
    }
}

/// A way has a database of its own: a namespace is bound to one way.
fn every_way(url: &str, create: impl Fn(&str)) {
    let urls = ["lease", "named", "row"].map(|way| {
        let name = format!("sale_{way}_{:08x}", fastrand::u32(..));
        create(&name);
        let (server, _) = url.rsplit_once('/').expect("a database");
        format!("{server}/{name}?way={way}")
    });
    sells_out(&urls);
}

fn every_way_of_mysql(url: &str) {
    every_way(url, |name| create_in_mysql(url, name));
}

fn create_in_mysql(url: &str, name: &str) {
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")));
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mut conn = sqlx::MySqlConnection::connect(url).await.expect("a session");
        sql.execute(&mut conn).await.expect("a database");
    });
}

#[test]
fn the_flash_sale_sells_out_in_every_way_of_mysql() {
    every_way_of_mysql(&shared().mysql().expect("a MySQL"));
}

#[test]
fn the_flash_sale_sells_out_in_every_way_of_mariadb() {
    every_way_of_mysql(&shared().mariadb().expect("a MariaDB"));
}

#[test]
fn the_flash_sale_sells_out_in_every_way_of_postgresql() {
    let url = shared().postgres().expect("a PostgreSQL");
    every_way(&url, |name| create_in_postgres(&url, name));
}

fn create_in_postgres(url: &str, name: &str) {
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")));
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mut conn = sqlx::PgConnection::connect(url).await.expect("a session");
        sql.execute(&mut conn).await.expect("a database");
    });
}

#[test]
fn a_withdrawal_in_the_locks_own_transaction_stays_if_the_call_succeeds_and_only_then() {
    for url in databases("withdraw") {
        let output = run("withdraw", &[&url]);
        assert!(output.status.success(), "{url}: {}", text(&output));
        assert!(text(&output).contains("10 withdrawals were paid, and 0 of 100 are left"), "{}", text(&output));
    }
}

#[test]
fn a_stock_with_a_version_column_sells_each_thing_once() {
    for url in databases("stock") {
        let output = run("stock_version", &[&url]);
        assert!(output.status.success(), "{url}: {}", text(&output));
        assert!(text(&output).contains("10 of 10 were sold to 30 buyers, and 0 are left"), "{}", text(&output));
    }
}

/// A night is booked twice without the lock: so the example looks.
#[test]
fn a_room_is_booked_once_by_a_lock_in_the_guests_own_transaction() {
    let [_, _, postgres] = databases("hotel");
    let output = run("booking", &[&postgres]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("and 0 nights are booked twice"), "{}", text(&output));
    // A race can be won by chance, but not three times.
    let broken = || run("booking", &[&postgres, "--unlocked"]).status.code() == Some(1);
    assert!((0..3).any(|_| broken()), "it does not tell that nothing is locked");
}

/// A new database in each of the SQL servers.
fn databases(case: &str) -> [String; 3] {
    let name = format!("{case}_{:08x}", fastrand::u32(..));
    let (mysql, mariadb) = (shared().mysql().expect("a MySQL"), shared().mariadb().expect("a MariaDB"));
    let postgres = shared().postgres().expect("a PostgreSQL");
    create_in_mysql(&mysql, &name);
    create_in_mysql(&mariadb, &name);
    create_in_postgres(&postgres, &name);
    [mysql, mariadb, postgres].map(|url| format!("{}/{name}", url.rsplit_once('/').expect("a database").0))
}

#[test]
fn the_flash_sale_sells_out_on_redis_and_redlock() {
    sells_out(&[shared().redis().expect("a Redis"), shared().redlock().expect("five Redis")]);
}

#[test]
fn the_flash_sale_sells_out_on_coordination_services() {
    let servers = [shared().etcd(), shared().zookeeper(), shared().consul()];
    sells_out(&servers.map(|url| url.expect("a server").replace("http://", "etcd://")));
}

#[test]
fn even_two_buyers_in_one_process_oversell_without_the_lock() {
    let output = run("flash_sale", &["--workers", "1", "--buyers=2", "--stock", "1"]);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn wrong_arguments_of_the_flash_sale_are_explained_and_not_repeated() {
    let wrong: [&[&str]; 9] = [
        &["--url"],
        &["--url", "memory://"],
        &["--url", "redis.example:sekret"],
        &["--url", "nosuch://:sekret@host"],
        &["--ulr=redis://:sekret@host"],
        &["redis://:sekret@host"],
        &["--workers", "sekret"],
        &["--workers", "0"],
        &["--stock", "1000"],
    ];
    for args in wrong {
        let output = run("flash_sale", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains("Usage:"), "{args:?}");
        assert!(!text(&output).contains("sekret"), "{args:?}");
    }
}

#[test]
fn a_flash_sale_without_a_server_fails_and_keeps_the_password() {
    let output = run("flash_sale", &["--url", "redis://:sekret@127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("FAILED"));
    assert!(!text(&output).contains("sekret"));
}

#[test]
fn the_small_examples_run_to_their_ends() {
    for name in ["stock", "fenced_write"] {
        let output = run(name, &[]);
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
}

/// An example with workers keeps its promise. Without the lock its check must fail, which shows that the check works.
macro_rules! promises {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let output = run(stringify!($name), &[]);
            assert!(output.status.success(), "{}", text(&output));
            // A race can be won by chance, but not three times.
            let broken = || run(stringify!($name), &["--unlocked"]).status.code() == Some(1);
            assert!((0..3).any(|_| broken()), "it does not tell that the locks exclude nobody");
        }
    )*};
}

promises! { payment cache order_state shared_file transfer long_task web worker_id rollout scheduled_report optimistic leader leader_schedule migration clusters }

/// The schedule and the payment are what people have a database for, and no Redis.
#[test]
fn a_schedule_and_a_payment_keep_their_promises_on_a_database_alone() {
    let [mysql, mariadb, postgres] = databases("service");
    // Beside Java nodes a service has its locks in ShedLock's table.
    let beside_java = format!("{mysql}?layout=shedlock&shedlock_create=yes");
    let runs = [
        ("scheduled_report", &mariadb),
        ("scheduled_report", &postgres),
        ("payment", &mariadb),
        ("payment", &postgres),
        ("payment", &mysql),
        ("payment", &beside_java),
    ];
    // Side by side, since they wait most of their time.
    thread::scope(|scope| {
        for (name, url) in runs {
            scope.spawn(move || {
                let output = run(name, &["--url", url]);
                assert!(output.status.success(), "{name} on {url}: {}", text(&output));
            });
        }
    });
}

#[test]
fn wrong_arguments_of_an_example_are_explained_and_not_repeated() {
    for args in [&["--url"] as &[&str], &["--url", "memory://"], &["--url", "sekret"], &["redis://:sekret@host"]] {
        let output = run("payment", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains("Usage:") && !text(&output).contains("sekret"), "{args:?}");
    }
}

/// The remaining stock, and the token.
type Purchase = (u32, Option<u64>);

/// The broken promise, if any, of a shop that had 3 things and made these purchases.
async fn judged(purchases: &[Purchase]) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let shop = Shop::create(&folder.path().join("shop.db"), 3).await.expect("a shop");
    for (buyer, (remaining, token)) in (1..).zip(purchases) {
        shop.sell(buyer, *remaining, *token).await.expect("a sale");
    }
    shop.count().await.expect("a count").broken_promise(3)
}

#[tokio::test]
async fn the_count_sees_every_kind_of_broken_ledger() {
    let t = Some;
    assert_eq!(judged(&[(2, t(5)), (1, t(6)), (0, t(9))]).await, None);
    let broken: [(&[Purchase], &str); 6] = [
        (&[(2, t(5)), (1, t(6)), (1, t(7)), (0, t(8))], "4 of 3 were sold"),
        (&[(2, t(5)), (1, t(6))], "2 of 3 were sold"),
        (&[(2, t(5)), (1, t(6)), (1, t(7))], "all were sold, and yet 1 are left"),
        (&[(2, t(5)), (1, t(5)), (0, t(6))], "token 5 follows 5 in the ledger"),
        (&[(2, t(6)), (1, t(5)), (0, t(7))], "token 5 follows 6 in the ledger"),
        (&[(2, t(5)), (1, None), (0, t(7))], "a purchase has no token"),
    ];
    for (purchases, why) in broken {
        assert_eq!(judged(purchases).await.as_deref(), Some(why));
    }
}
