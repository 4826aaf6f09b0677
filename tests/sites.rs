//! Knowing one's locks: the catalogue, the check at the start, settings from outside, the key of a call.

use std::time::Duration;

use dlock::backends::memory::Memory;
use dlock::{Defaults, Error, ErrorKind, Key, Registry, Tuning, Wait, distributed_lock, key_of, keys_of, sites};
use dlock_testkit::servers::shared;
use sqlx::{Connection, Executor, PgConnection};

#[distributed_lock(key = "stock:<id>", ttl = "20s", wait = "3s")]
async fn deduct(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// Never called.
#[distributed_lock(key = "nightly", backend = "reports")]
async fn report() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "brief", ttl = "1ms", backend = "brief")]
async fn brief() -> Result<(), Error> {
    Ok(())
}

struct Shop {
    name: String,
}

trait Ships {
    async fn ship(&self, order: u32) -> Result<(), Error>;
}

impl Ships for Shop {
    #[distributed_lock(key = "ship:<self.name>:<order>", wait = "none")]
    async fn ship(&self, order: u32) -> Result<(), Error> {
        assert!(order > 0);
        Ok(())
    }
}

fn registry(names: &[&str]) -> Registry {
    let registry = Registry::new();
    for name in names {
        registry.install(name, Memory::new()).unwrap();
    }
    registry.set_default(names[0]).unwrap();
    registry
}

#[test]
fn a_site_tells_its_key_where_it_is_one_for_all_calls() {
    let keys: Vec<_> = sites().iter().map(|site| site.fixed_key().map(|key| key.to_string())).collect();
    assert_eq!(keys, [None, Some("nightly".to_owned()), Some("brief".to_owned()), None]);
    assert!(sites().iter().all(|site| site.once_per().is_none()));
}

#[test]
fn every_annotated_function_is_listed() {
    let all = sites();
    let names: Vec<_> = all.iter().map(|site| site.name()).collect();
    assert_eq!(names, ["sites::deduct", "sites::report", "sites::brief", "sites::ship"]);
    let deduct = &all[0];
    assert_eq!(deduct.templates(), ["stock:<id>"]);
    assert_eq!(
        (deduct.ttl(), deduct.wait()),
        (Some(Duration::from_secs(20)), Some(Wait::UpTo(Duration::from_secs(3))))
    );
    assert!(deduct.file().ends_with("sites.rs") && deduct.line() > 5);
    assert_eq!(all[1].backend(), Some("reports"));
}

#[test]
fn verify_reports_all_problems_at_once() {
    let found = registry(&["memory"]).verify().unwrap_err();
    let kinds: Vec<_> = found.iter().map(|(site, error)| (site.name(), error.kind().as_str())).collect();
    assert_eq!(kinds, [("sites::report", "backend_not_registered"), ("sites::brief", "backend_not_registered")]);
    let text = found.to_string();
    assert!(text.contains("sites.rs:") && text.contains("dlock::connect(\"reports\""), "{text}");

    let found = registry(&["memory", "reports", "brief"]).verify().unwrap_err();
    let kinds: Vec<_> = found.iter().map(|(site, error)| (site.name(), error.kind().as_str())).collect();
    assert_eq!(kinds, [("sites::brief", "ttl_out_of_range")]);

    // Several stores and no default: each function that names no store is an error.
    let several = Registry::new();
    for name in ["reports", "brief"] {
        several.install(name, Memory::new()).unwrap();
    }
    let text = several.verify().unwrap_err().to_string();
    assert!(text.contains("sites::deduct") && text.contains("there are several (installed: brief, reports)"), "{text}");
}

#[test]
fn verify_takes_defaults_and_tunings_as_they_are() {
    let registry = registry(&["memory", "reports", "brief"]);
    registry.tune("sites::brief", |site| site.ttl = Some(Duration::from_secs(1))).unwrap();
    registry.verify().unwrap();
    let huge = |defaults: &mut Defaults| {
        let year = Duration::from_secs(365 * 86_400);
        (defaults.ttl, defaults.max_hold) = (50 * year, 100 * year);
    };
    registry.configure(huge).unwrap();
    let found = registry.verify().unwrap_err();
    assert_eq!(found.iter().count(), 2, "those that name no ttl: {found}");
}

#[tokio::test]
async fn verify_repeats_what_a_store_has_refused() {
    let registry = registry(&["memory", "brief"]);
    registry.tune("sites::brief", |site| site.ttl = Some(Duration::from_secs(1))).unwrap();
    let server = shared().postgres().unwrap();
    let mut conn = PgConnection::connect(&server).await.unwrap();
    let table = format!("orders_{:08x}", fastrand::u32(..));
    let mut run = async |sql: &str| {
        conn.execute(sqlx::AssertSqlSafe(sql.replace("orders", &table))).await.unwrap();
    };
    let url = format!("{server}?way=row&table={table}&column=id");
    let repeats = |refused: &Error| {
        let found = registry.verify().unwrap_err();
        let found: Vec<_> = found.iter().collect();
        let [(site, error)] = found[..] else { panic!("{found:?}") };
        assert_eq!(site.name(), "sites::report");
        assert_eq!((error.kind(), error.message()), (refused.kind(), refused.message()));
        assert_eq!((refused.kind(), error.backend()), (&ErrorKind::SchemaMismatch, Some("reports")));
    };

    run("CREATE TABLE orders (id TEXT NOT NULL)").await;
    repeats(&registry.connect("reports", &url).await.unwrap_err());
    run("CREATE UNIQUE INDEX one_of_orders ON orders (id)").await;
    registry.connect("reports", &url).await.unwrap();
    registry.verify().unwrap();
    run("DROP INDEX one_of_orders").await;
    repeats(&registry.ready("reports").await.unwrap_err());
    run("CREATE UNIQUE INDEX one_of_orders ON orders (id)").await;
    registry.ready("reports").await.unwrap();
    registry.verify().unwrap();
}

#[test]
fn a_site_is_tuned_by_name_and_wrong_settings_are_refused() {
    let registry = registry(&["memory", "reports", "brief"]);
    registry
        .tune_from(
            "# slow reports\nsites::report ttl=2m wait=none on_lost=continue; sites::deduct retry=1 backoff=10ms..1s",
        )
        .unwrap();
    let text = registry.explain().to_string();
    assert!(text.contains("ttl          2m") && text.contains("10ms to 1s") && text.contains("1 times"), "{text}");
    for (nonsense, part) in [
        ("sites::nobody ttl=1s", "no locked function with this name; these exist: sites::deduct"),
        ("sites::deduct ttl", "is not `setting=value`"),
        ("sites::deduct ttl=soon", "`soon` is not a duration; expected a number with a unit"),
        ("sites::deduct colour=red", "no such setting"),
        ("sites::deduct on_busy=skip", "cannot change without a rebuild"),
        ("sites::deduct attempts=-1", "no count"),
        ("\nsites::deduct max_hold=1s", "line 2: sites::deduct: max_hold"),
        ("# sites::deduct ttl=1s;\nsites::deduct ;; sites::report #\n sites::deduct max_hold=1s", "line 3: "),
        ("sites::deduct backoff=5s", "expected two durations"),
        ("sites::deduct retry=5, 100ms..2s", "needs quotes"),
        ("sites::deduct wait=\"5s", "no other one in its line"),
        ("ttl=1s", "write the name of a locked function first"),
        ("sites::deduct ttl=1s =", "without a setting"),
    ] {
        let error = registry.tune_from(nonsense).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }) && error.to_string().contains(part), "{error}");
    }
    assert!(registry.explain().to_string().contains("ttl          20s"), "nothing of the nonsense is in force");
}

#[test]
fn a_comment_ends_with_its_line() {
    let registry = registry(&["memory", "reports", "brief"]);
    let before = registry.explain().to_string();
    registry.tune_from("# sites::deduct ttl=1m; sites::deduct wait=none").unwrap();
    registry.tune_from("  #\n\n ; # sites::deduct ttl=1m;sites::deduct wait=none\r\n").unwrap();
    assert_eq!(registry.explain().to_string(), before);
    registry.tune_from("\"sites::deduct\" wait = none, attempts = 7 # slow; sites::deduct attempts=9").unwrap();
    let text = registry.explain().to_string();
    assert!(text.contains("attempts     7") && text.contains("ttl          20s"), "{text}");
}

#[test]
fn defaults_that_contradict_what_is_tuned_are_refused() {
    let registry = registry(&["memory", "reports", "brief"]);
    registry.tune_from("sites::report renew=15s; sites::ship ttl=1m max_hold=1m").unwrap();
    for (ttl, is_ok) in [(25, true), (20, false), (23, true)] {
        let result = registry.configure(|defaults| defaults.ttl = Duration::from_secs(ttl));
        assert_eq!(result.is_ok(), is_ok, "{ttl}: {result:?}");
        if let Err(error) = result {
            assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
            assert!(error.to_string().contains("sites::report") && error.to_string().contains("two thirds"), "{error}");
            assert_eq!(registry.defaults().ttl, Duration::from_secs(25), "the old ones stay");
        }
    }
}

/// In its closure the registry can be asked for anything but another change.
#[test]
fn tuning_delays_no_call() {
    let registry = registry(&["memory", "reports", "brief"]);
    let change = |site: &mut Tuning| {
        assert!(registry.explain().to_string().contains("ttl          20s"));
        for refused in [registry.configure(|_| {}), registry.tune("sites::report", |_| {})] {
            assert_eq!(refused.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
        }
        site.ttl = Some(Duration::from_secs(50));
    };
    registry.tune("sites::deduct", change).unwrap();
    assert!(registry.explain().to_string().contains("ttl          50s"));
    registry.configure(|_| {}).unwrap();
}

#[test]
fn explain_gives_a_table_and_json() {
    let registry = registry(&["memory", "brief"]);
    let text = registry.explain().to_string();
    for part in
        ["sites::deduct  (", "key          stock:<id>", "backend      memory (memory)", "reports (not installed)"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&registry.explain().to_json()).unwrap();
    assert_eq!(json[0]["name"], "sites::deduct");
    assert_eq!((&json[0]["settings"]["ttl"], &json[3]["settings"]["wait"]), (&"20s".into(), &"none".into()));
}

#[test]
fn the_key_of_a_call_can_be_computed_without_the_call() {
    let shop = Shop { name: "a:b".into() };
    assert_eq!(key_of(deduct(42)).unwrap(), Key::text("stock:").value(&42));
    assert_eq!(key_of(shop.ship(7)).unwrap().to_string(), "ship:<a:b>:<7>");
    assert_eq!(keys_of(report()).unwrap().len(), 1);
    assert_eq!(key_of(deduct(1)).unwrap().template(), "stock:<>");
    let error = key_of(async { 1 }).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
}

mod kit {
    use dlock::testing::TestKit;
    use dlock::{assert_locked, current};

    use super::*;

    #[tokio::test]
    async fn each_test_kit_has_its_own_stores_under_the_names_of_the_program() {
        let (kit, other) = (TestKit::new(), TestKit::new());
        let _in = kit.enter();
        report().await.unwrap();
        let held = kit.lock(key_of(deduct(1)).unwrap()).acquire().await.unwrap();
        let waiting = deduct(1);
        assert!(kit.lock(Key::text("stock:").value(&1)).is_locked().await.unwrap());
        assert_eq!(other.scope(deduct(1)).await.unwrap(), 1);
        {
            let _inner = other.enter();
            assert_eq!(deduct(1).await.unwrap(), 1);
        }
        drop(held);
        assert_eq!(waiting.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_test_kit_is_busy_lost_or_down_on_demand() {
        let kit = TestKit::new();
        let _in = kit.enter();
        let shop = Shop { name: "s".into() };
        kit.busy_for(Duration::from_secs(5));
        let busy = shop.ship(1).await.unwrap_err();
        assert_eq!(busy.kind(), &ErrorKind::Busy);
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(5)));
        kit.clock().advance(Duration::from_secs(5));
        shop.ship(1).await.unwrap();

        kit.outage(true);
        assert_eq!(shop.ship(1).await.unwrap_err().kind(), &ErrorKind::Outage);
        kit.outage(false);
        shop.ship(1).await.unwrap();

        kit.lost_after(Duration::from_secs(2));
        let guard = kit.lock("k").acquire().await.unwrap();
        assert!(guard.check().is_ok());
        kit.clock().advance(Duration::from_secs(3));
        assert!(guard.check().unwrap_err().is_lost());
        kit.lost_after(None);
        drop(guard);
    }

    #[tokio::test]
    async fn assert_locked_fails_outside_of_its_lock() {
        let kit = TestKit::new();
        let _in = kit.enter();
        let under = kit.lock(Key::text("stock:").value(&1)).run(|_| async {
            assert_locked!();
            assert_locked!(Key::text("stock:").value(&1));
            assert!(current().is_some());
            std::panic::catch_unwind(|| assert_locked!("stock")).is_err()
        });
        assert!(under.await.unwrap());
        assert!(std::panic::catch_unwind(|| assert_locked!()).is_err());
    }
}
