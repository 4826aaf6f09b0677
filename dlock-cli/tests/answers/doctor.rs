//! `dlock doctor`: rights, settings and promises of a store.

use std::process::Command;

use dlock_testkit::servers::{Instance, Redis, shared};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};

use crate::{dlock, json};

/// One right after the other is told, not the first that lacks.
#[test]
fn a_doctor_says_what_the_account_may_not_do() {
    let url = shared().redis().unwrap();
    let server = url.strip_prefix("redis://").unwrap();
    let user = format!("doctor-{:x}", fastrand::u64(..));
    let asked = |words: &[&str]| {
        let mut client = redis::Client::open(&*url).unwrap().get_connection().unwrap();
        redis::cmd("ACL").arg(words).exec(&mut client).unwrap();
    };
    asked(&["SETUSER", &user, "on", ">pw", "~*", "&*", "+@all", "-scan"]);
    let restricted = format!("redis://{user}:pw@{server}");
    let (json, unable) = unable(&restricted);
    asked(&["DELUSER", &user]);
    assert!(matches!(&unable[..], [(what, why)] if what == "list locks" && why.contains("`scan`")), "{json}");
    assert!(json["cycle_p50_ms"].is_number());
    assert!(!json.to_string().contains("pw"));
}

#[tokio::test]
async fn a_doctor_tells_the_right_that_an_account_of_a_database_lacks() {
    let name = format!("doctor_{:x}", fastrand::u32(..));
    // PostgreSQL: the tables are in a schema of the test.
    let url = shared().postgres().unwrap();
    let mut root: PgConnection = url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(&mut root).await.unwrap();
    assert!(dlock(&format!("{url}?schema={name}"), &["ls"]).status().unwrap().success());
    let rights = format!(
        "CREATE ROLE {name} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA {name} TO {name}; \
         GRANT SELECT, INSERT, UPDATE ON {name}.dlock_locks, {name}.dlock_meta TO {name}; \
         GRANT SELECT ON {name}.dlock_breaks TO {name}"
    );
    sqlx::raw_sql(AssertSqlSafe(rights)).execute(&mut root).await.unwrap();
    let (_, server) = url.split_once('@').unwrap();
    let said = refused(&format!("postgres://{name}:pw@{server}?schema={name}"));
    assert!(said.contains("lacks a right on dlock's tables") && said.contains("dlock_breaks"), "{said}");
    // MariaDB: they are in a database of the test.
    let url = shared().mariadb().unwrap();
    let mut root: MySqlConnection =
        url.replace("mariadb:", "mysql:").parse::<MySqlConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut root).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    assert!(dlock(&format!("{server}/{name}"), &["ls"]).status().unwrap().success());
    let rights = format!(
        "CREATE USER {name} IDENTIFIED BY 'pw'; GRANT SELECT, INSERT, UPDATE ON {name}.dlock_locks TO {name}; \
         GRANT SELECT, INSERT, UPDATE ON {name}.dlock_meta TO {name}; GRANT SELECT ON {name}.dlock_breaks TO {name}"
    );
    sqlx::raw_sql(AssertSqlSafe(rights)).execute(&mut root).await.unwrap();
    let (_, host) = server.split_once('@').unwrap();
    let said = refused(&format!("mariadb://{name}:pw@{host}/{name}"));
    assert!(said.contains("lacks a right on dlock's table: INSERT"), "{said}");
}

/// Whether a restart of Redis forgets locks is up to its settings.
#[test]
fn a_doctor_shows_the_settings_on_which_a_promise_depends() {
    let survives = |options: &[&str]| {
        let server = Instance::start(Redis::with(options)).unwrap();
        let report = json(&dlock(&server.url(), &["doctor", "--rounds", "1", "--json"]).output().unwrap());
        let text = dlock(&server.url(), &["doctor", "--rounds", "1"]).output().unwrap();
        let text = String::from_utf8(text.stdout).unwrap();
        for (name, value) in report["settings"].as_object().unwrap() {
            let (name, value) = (format!(" {name} "), value.as_str().unwrap());
            assert!(text.lines().any(|line| line.contains(&name) && line.ends_with(value)), "{name}: {text}");
        }
        (report["settings"].to_string(), report["promises"]["locks survive"].as_str().unwrap().to_owned())
    };
    for (options, told, survive) in [
        (
            &["--appendonly", "yes", "--appendfsync", "always"][..],
            r#"{"appendfsync":"always","appendonly":"yes","maxmemory-policy":"noeviction"}"#,
            "a restart of the store; NO failover",
        ),
        (
            &["--appendonly", "yes", "--appendfsync", "everysec"],
            r#"{"appendfsync":"everysec: a power failure forgets the last writes","appendonly":"yes","maxmemory-policy":"noeviction"}"#,
            "a restart of the store; NO failover",
        ),
        (&[], r#"{"appendonly":"no","maxmemory-policy":"noeviction"}"#, "NO: a restart of the store forgets"),
    ] {
        let (settings, survives) = survives(options);
        assert_eq!(settings, told);
        assert!(survives.starts_with(survive), "{survives}");
    }
}

#[tokio::test]
async fn a_doctor_promises_nothing_of_a_store_that_it_could_not_ask() {
    let name = format!("doctor_{:x}", fastrand::u32(..));
    let url = shared().postgres().unwrap();
    let mut root: PgConnection = url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(&mut root).await.unwrap();
    let doctor = |url: &str| {
        // Other tests of this database have tables of the usual namespace.
        let report = dlock(url, &["doctor", "--rounds", "1", "--namespace", &name]).output().unwrap();
        (report.status.code(), String::from_utf8(report.stdout).unwrap())
    };
    let url = format!("{url}?schema={name}");
    let (code, said) = doctor(&url);
    assert!(code == Some(0) && said.contains("no setting here weakens a promise"), "{said}");
    // The namespace is locked in another way, so no lock is taken here.
    let (code, said) = doctor(&format!("{url}&way=named"));
    assert!(code == Some(70) && said.contains("NO") && !said.contains("no setting here"), "{said}");
}

#[test]
fn a_doctor_promises_no_failover_of_a_single_member() {
    let stores = [(shared().zookeeper().unwrap(), "ZooKeeper 3."), (shared().consul().unwrap(), "Consul 1.")];
    for (url, version) in stores {
        let report = dlock(&url, &["doctor", "--rounds", "1"]).output().unwrap();
        let said = String::from_utf8(report.stdout).unwrap();
        assert!(said.contains(version) && said.contains("NO failover: it has 1 of at least 3 members"), "{said}");
    }
}

#[test]
fn a_doctor_says_which_settings_weaken_a_promise_and_in_colours_if_it_may() {
    let server = Instance::start(Redis::default()).unwrap();
    let doctor = |url: &str, change: fn(&mut Command)| {
        let mut command = dlock(url, &["doctor", "--rounds", "1"]);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        change(&mut command);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    server.ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    let url = format!("{}?eviction=allow", server.url());
    let said = doctor(&url, |_| {});
    assert!(said.contains("weaker: maxmemory-policy is allkeys-lru") && !said.contains("no setting here"), "{said}");
    let report = json(&dlock(&url, &["doctor", "--rounds", "1", "--json"]).output().unwrap());
    assert!(report["findings"].to_string().contains("allkeys-lru"), "{report}");
    assert!(report["version"].to_string().starts_with("\"Redis ") && report["role"] == "primary", "{report}");
    assert!(report["cycle_p50_ms"].as_f64().is_some_and(|p50| p50 > 0.0), "{report}");
    assert!(!said.contains('\u{1b}'), "a pipe gets no colours: {said:?}");
    let forced = |command: &mut Command| _ = command.env("CLICOLOR_FORCE", "1");
    assert!(doctor(&url, forced).contains("\u{1b}["));
}

/// The words of a doctor to whom the store is not opened: a database is asked for all rights at once.
fn refused(url: &str) -> String {
    let report = dlock(url, &["doctor", "--rounds", "1"]).output().unwrap();
    let said = String::from_utf8(report.stderr).unwrap();
    assert!(report.status.code() == Some(77) && !said.contains("pw"), "{said}");
    said
}

/// The report of a doctor whose account lacks a right, and what the account may not do, with the reason.
fn unable(url: &str) -> (serde_json::Value, Vec<(String, String)>) {
    let report = dlock(url, &["doctor", "--rounds", "1", "--json"]).output().unwrap();
    assert_eq!(report.status.code(), Some(77), "{report:?}");
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let trials = json["trials"].as_object().unwrap().iter().filter(|(_, outcome)| *outcome != "yes");
    let unable = trials.map(|(what, why)| (what.clone(), why.to_string())).collect();
    (json, unable)
}
