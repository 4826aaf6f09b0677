//! The alerts of `ops/` work, and ask for metrics that there are. The dashboard's queries answer.

#![expect(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use dlock::metrics::{Metrics, SECONDS, SHARES};
use dlock::{Cohort, Key, OncePer, Registry, Wait};
use dlock_testkit::servers::{Instance, Redis, Tree, find_program, free_port};
use dlock_testkit::wait_until;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// All words that begin as a metric's name does.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    // A crate is no metric.
    let words = words.filter(|word| word.starts_with("dlock_") && *word != "dlock_console");
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

fn program(name: &str) -> PathBuf {
    let unpacked = Tree::named("prometheus").root().join("usr/bin").join(name);
    let program = unpacked.is_file().then_some(unpacked).or_else(|| find_program(name));
    program.unwrap_or_else(|| panic!("{name} is missing; run: cargo xtask servers"))
}

#[test]
fn the_alerts_fire_when_they_should_and_not_else() {
    let program = program("promtool");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ops");
    let check: &[_] = &["check", "rules", "prometheus-rules.yml"];
    let test = &["test", "rules", "prometheus-rules.test.yml", "prometheus-rules-weeks.test.yml"];
    for arguments in [check, test] {
        let output = Command::new(&program).args(arguments).current_dir(&folder).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
}

#[test]
fn alerts_and_pages_ask_for_metrics_that_there_are() {
    let source = read("src/metrics.rs");
    let (page, described) = source.split_once("fn describe()").unwrap();
    let there_are = metrics_in(described);
    assert!(there_are.len() >= 25, "{there_are:?}");
    for file in ["ops/prometheus-rules.yml", "docs/operations.md", "ops/grafana-dashboard.json"] {
        for name in metrics_in(&read(file)) {
            assert!(there_are.contains(name), "{file}: there is no {name}");
        }
    }
    let dashboard = read("ops/grafana-dashboard.json");
    let shown = metrics_in(&dashboard);
    for name in there_are {
        assert!(shown.contains(name), "{name} is not on the dashboard");
        assert!(page.contains(&format!("//! | `{name}` |")), "{name} is not on the page of the module");
    }
}

#[test]
fn each_alert_is_tested_and_is_on_the_page() {
    let (rules, tests, page) =
        (read("ops/prometheus-rules.yml"), read("ops/prometheus-rules.test.yml"), read("docs/operations.md"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        // Once where nothing is wrong, and at least once where it fires.
        assert!(tests.matches(&format!("alertname: {alert}")).count() >= 2, "{alert} has no test");
        assert!(page.contains(&format!("\n### {alert}\n")), "{alert} is not in docs/operations.md");
        let runbook = format!("runbook: docs/operations.md#{}\n", alert.to_lowercase());
        assert_eq!(rules.matches(&runbook).count(), 1, "{alert} does not lead to its part of the page");
    }
}

/// An alert on a quantile is right if its threshold is the end of a bucket. Between two ends the quantile is a guess.
#[test]
fn the_buckets_end_at_the_thresholds_of_the_alerts() {
    assert!(read("ops/prometheus-rules.yml").contains("> 0.8 * max by (lock, backend) (dlock_max_hold_seconds)"));
    let defaults = Registry::new().defaults();
    let Wait::UpTo(wait) = defaults.wait else { panic!("{defaults:?}") };
    for limit in [wait.as_secs_f64(), defaults.max_hold.as_secs_f64(), 30.0, 60.0] {
        assert!(SECONDS.contains(&(limit * 0.8)), "0.8 of {limit} s");
    }
    assert!(SECONDS.is_sorted() && SHARES.is_sorted());
}

/// The queries of all panels and of the variables, with values for the variables of Grafana.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("ops/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let panels = panels.flatten().map(|target| target["expr"].as_str().unwrap().to_owned());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    // Grafana asks for the values of a label in its own way.
    let variables = variables.filter(|variable| variable["type"] == "query").map(|variable| {
        let asked = variable["query"].as_str().unwrap();
        let values = asked.strip_prefix("label_values(").and_then(|asked| asked.strip_suffix(")")).unwrap();
        let (series, label) = values.rsplit_once(", ").unwrap();
        format!("count by ({label}) ({series})")
    });
    let all = panels.chain(variables);
    all.map(|query| query.replace("$__rate_interval", "1m").replace("$lock", ".*").replace("$backend", ".*")).collect()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Prometheus that asks this port twice a second.
fn prometheus(folder: &Path, target: u16) -> (Killed, u16) {
    let port = free_port();
    let config = format!(
        "global: {{ scrape_interval: 500ms }}\nscrape_configs:\n  - job_name: dlock\n    static_configs: [{{ targets: ['127.0.0.1:{target}'] }}]\n"
    );
    std::fs::write(folder.join("prometheus.yml"), config).unwrap();
    let mut command = Command::new(program("prometheus"));
    command.arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=data").current_dir(folder);
    command.arg(format!("--web.listen-address=127.0.0.1:{port}")).stdout(Stdio::null()).stderr(Stdio::null());
    (Killed(command.spawn().unwrap()), port)
}

/// How many series answer a query; the text of the refusal if it is wrong. `None` before Prometheus answers.
async fn ask(port: u16, query: &str) -> Option<Result<usize, String>> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    if let Some(refusal) = answer["error"].as_str() {
        return Some(Err(refusal.to_owned()));
    }
    // A quotient without events is no number.
    let series = answer["data"]["result"].as_array()?.iter();
    Some(Ok(series.filter(|series| series["value"][1].as_str().is_some_and(|value| value != "NaN")).count()))
}

/// Everything that can happen to locks, again and again.
async fn load(registry: Registry) {
    let short = Duration::from_millis(300);
    let kept = registry.lock("kept").name("kept").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    loop {
        kept.confirm().await.unwrap();
        let lock = |name: &'static str| registry.lock(Key::text(name)).name(name);
        let cohort = || lock("stock").wait(Wait::UpTo(10 * short)).cohort(Some(Cohort { passes: 64, span: None }));
        let callers = (0..8).map(|_| cohort().run(async |_| tokio::time::sleep(short / 100).await));
        futures::future::join_all(callers).await;
        let _lost = lock("lost").ttl(short).max_hold(short).run(async |held| held.lost().await).await;
        let _renewed = lock("renewed").ttl(short).run(async |_| tokio::time::sleep(short).await).await;
        let guard = lock("broken").acquire().await.unwrap();
        let fence = guard.fence().unwrap();
        dlock::fenced::line(&fence, "token", "?").unwrap().written(0).unwrap_err();
        let id = lock("broken").holders().await.unwrap().holders[0].id.unwrap();
        lock("broken").break_hold(id).by("alice").await.unwrap();
        drop(guard);
        let _deadlock = lock("nested").run(async |_| lock("nested").acquire().await.map(drop)).await;
        let task = registry.lock(Key::text("task").value(&fastrand::u64(..))).name("task");
        task.once_per(OncePer::new(Duration::from_secs(3600))).run(async |_| ()).await.unwrap();
        // Its server is down.
        let _outage = lock("down").backend("redis").wait(Wait::None).acquire().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_the_dashboard_answers_for_a_program_under_load() {
    let exporter = PrometheusBuilder::new().set_buckets(&SECONDS).unwrap();
    let ratio = Matcher::Full("dlock_renewal_lease_left_ratio".to_owned());
    let exporter = exporter.set_buckets_for_metric(ratio, &SHARES).unwrap().install_recorder().unwrap();
    let page = Router::new().route("/metrics", get(async move || exporter.render()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().port();
    tokio::spawn(axum::serve(listener, page).into_future());

    let server = Instance::start(Redis::default()).unwrap();
    let registry = Registry::new();
    registry.observe(Metrics::new());
    registry.install("main", dlock_memory::Memory::new()).unwrap();
    registry.set_default("main").unwrap();
    registry.connect("redis", &server.url()).await.unwrap();
    let held = registry.lock("held").name("held").backend("redis").acquire().await.unwrap();
    server.kill9().unwrap();
    drop(held);
    let leadership = registry.elect("billing").campaign().await.unwrap();
    let program = tokio::spawn(load(registry.clone()));

    let folder = tempfile::tempdir().unwrap();
    let (_prometheus, port) = prometheus(folder.path(), target);
    let queries = queries();
    assert!(queries.len() >= 20, "{queries:?}");
    for query in queries {
        let answers = async || match ask(port, &query).await {
            Some(Ok(series)) => series > 0,
            Some(Err(refusal)) => panic!("{query}: {refusal}"),
            None => false,
        };
        wait_until(&format!("an answer to {query}"), answers).await.unwrap();
    }
    assert!(!program.is_finished(), "{:?}", program.await);
    assert!(leadership.check().is_ok());
    program.abort();
}
