//! The value of an option is written in one way, whether it comes from the attribute, a text, the environment or as a type.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "a test ends where it fails, and nothing calls the functions"
)]

use std::process::Command;
use std::time::Duration;

use dlock::{Backoff, Error, ErrorKind, OnLost, Registry, Renew, Retry, Tuning, Wait, distributed_lock};
use serde_json::Value;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// One way to write an option: the site whose attribute has it, the text of it, and the value that it means.
struct Form {
    site: &'static str,
    text: &'static str,
    typed: fn(&mut Tuning),
}

macro_rules! forms {
    ($($site:ident ($($attribute:tt)*) $text:literal $typed:expr;)*) => {
        $(
            #[distributed_lock(key = "k", $($attribute)*)]
            async fn $site() -> Result<(), Error> {
                Ok(())
            }
        )*
        const FORMS: &[Form] = &[$(Form { site: concat!("forms::", stringify!($site)), text: $text, typed: $typed }),*];
    };
}

const fn pauses(from: Duration, to: Duration) -> Option<Backoff> {
    Some(Backoff::new(from, to))
}

forms! {
    ttl_seconds(ttl = "30s") "ttl=30s" |site| site.ttl = Some(30 * S);
    ttl_parts(ttl = "1m30s") r#"ttl = "1m30s""# |site| site.ttl = Some(90 * S);
    ttl_millis(ttl = "1500ms") "ttl=1500ms" |site| site.ttl = Some(1500 * MS);
    wait_time(wait = "5s") "wait=5s" |site| site.wait = Some(Wait::UpTo(5 * S));
    wait_none(wait = none) "wait=none" |site| site.wait = Some(Wait::None);
    wait_forever(wait = "forever") r#"wait="forever""# |site| site.wait = Some(Wait::Forever);
    attempts(attempts = 5) "attempts=5" |site| site.attempts = Some(5);
    attempts_long(attempts = 1_000) "attempts=1_000" |site| site.attempts = Some(1000);
    backoff(backoff = "100ms..5s") "backoff=100ms..5s" |site| site.backoff = pauses(100 * MS, 5 * S);
    backoff_blanks(backoff = "100ms .. 5s") r#"backoff="100ms .. 5s""# |site| site.backoff = pauses(100 * MS, 5 * S);
    max_waiters(max_waiters = 100) "max_waiters=100" |site| site.max_waiters = Some(100);
    renew_on(renew = true) "renew=true" |site| site.renew = Some(Renew::Auto);
    renew_off(renew = false) "renew=false" |site| site.renew = Some(Renew::Off);
    renew_every(renew = "5s") "renew=5s" |site| site.renew = Some(Renew::Every(5 * S));
    max_hold(max_hold = "10m") "max_hold=10m" |site| site.max_hold = Some(600 * S);
    timeout(timeout = "20s") "timeout=20s" |site| site.timeout = Some(20 * S);
    min_hold(min_hold = "10s") "min_hold=10s" |site| site.min_hold = Some(10 * S);
    lost_cancel(on_lost = cancel) "on_lost=cancel" |site| site.on_lost = Some(OnLost::Cancel);
    lost_continue(on_lost = continue) "on_lost=continue" |site| site.on_lost = Some(OnLost::Continue);
    retry_never(retry = false) "retry=false" |site| site.retry = Some(Retry { times: 0, backoff: None });
    retry_count(retry = 5) "retry=5" |site| site.retry = Some(Retry { times: 5, backoff: None });
    retry_pauses(retry = "5, 100ms..2s") r#"retry="5, 100ms..2s""#
        |site| site.retry = Some(Retry { times: 5, backoff: pauses(100 * MS, 2 * S) });
}

#[distributed_lock(key = "k")]
async fn bare() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k")]
fn plain() -> Result<(), Error> {
    Ok(())
}

const CHILD: &str = "DLOCK_FORMS_TEST_CHILD";

/// Something only in the process that the next test starts.
#[tokio::test]
async fn child_that_prints_its_settings() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match Registry::global().connect_from_env().await {
        Ok(_) => println!("\nsettings: {}", settings(Registry::global(), "forms::bare")),
        Err(error) => println!("\nrefused: {error}"),
    }
}

/// The last line of a process with this variable.
fn process_with(variable: &str, value: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_that_prints_its_settings", "--nocapture"]).env(CHILD, "1").env(variable, value);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let said = output.lines().find(|line| line.starts_with("settings: ") || line.starts_with("refused: "));
    said.unwrap_or_else(|| panic!("{output}")).to_owned()
}

fn settings(registry: &Registry, site: &str) -> Value {
    let all: Value = serde_json::from_str(&registry.explain().to_json()).unwrap();
    all.as_array().unwrap().iter().find(|one| one["name"] == site).unwrap()["settings"].clone()
}

#[test]
fn a_form_means_the_same_in_each_place() {
    for Form { site, text, typed } in FORMS {
        let attribute = settings(&Registry::new(), site);
        let by_text = Registry::new();
        by_text.tune_from(&format!("forms::bare {text}")).unwrap();
        assert_eq!(settings(&by_text, "forms::bare"), attribute, "{text}");
        let by_type = Registry::new();
        by_type.tune("forms::bare", typed).unwrap();
        assert_eq!(settings(&by_type, "forms::bare"), attribute, "{text}");
        assert_eq!(process_with("DLOCK_TUNE", &format!("forms::bare {text}")), format!("settings: {attribute}"));
        let (option, value) = text.split_once('=').unwrap();
        if let option @ ("ttl" | "wait" | "max_hold") = option.trim() {
            let variable = format!("DLOCK_{}", option.to_uppercase());
            let value = value.trim().trim_matches('"');
            assert_eq!(process_with(&variable, value), format!("settings: {attribute}"), "{variable}");
        }
    }
}

/// `dlock-macros/tests/ui` refuses the same values in the attribute.
#[test]
fn a_text_that_the_attribute_refuses_is_refused_in_each_place() {
    let times = ["30", "0s", "30 s", "1.5s", "1M", "1y", "30seconds", "36501d", "-1s", "soon"];
    for value in times {
        for option in ["ttl", "wait", "renew", "max_hold", "timeout", "min_hold"] {
            let text = format!("forms::bare {option}=\"{value}\"");
            let error = Registry::new().tune_from(&text).expect_err(&text);
            assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
        }
    }
    for variable in ["DLOCK_TTL", "DLOCK_WAIT", "DLOCK_MAX_HOLD"] {
        for value in ["30", "0s", "1M", "36501d"] {
            assert!(process_with(variable, value).contains(&format!("{variable} must be")), "{variable}={value}");
        }
    }
    for text in [
        "attempts=0",
        "attempts=-1",
        "attempts=_1",
        "max_waiters=0",
        "retry=0",
        "retry=none",
        "retry=true",
        "backoff=5s..1s",
        "backoff=1us..1s",
        "renew=1ns",
        "on_lost=stop",
    ] {
        Registry::new().tune_from(&format!("forms::bare {text}")).expect_err(text);
    }
}

#[test]
fn a_count_of_retries_leaves_the_pauses() {
    let pauses = |registry: &Registry, site| settings(registry, site)["retry"].as_str().unwrap().to_owned();
    let registry = Registry::new();
    registry.tune_from("forms::retry_pauses retry=7").unwrap();
    assert_eq!(pauses(&registry, "forms::retry_pauses"), "7 times, 100ms to 2s");
    registry.tune_from("forms::bare retry=\"2, 1s..3s\"\nforms::bare retry=9").unwrap();
    assert_eq!(pauses(&registry, "forms::bare"), "9 times, 1s to 3s");
    // Those of the registry, where the attribute has only a count.
    registry.configure(|defaults| defaults.retry.backoff = Some(Backoff::new(4 * S, 8 * S))).unwrap();
    assert_eq!(pauses(&registry, "forms::retry_count"), "5 times, 4s to 8s");
    assert_eq!(pauses(&registry, "forms::retry_never"), "0 times, 4s to 8s");
}

#[test]
fn a_limit_that_a_plain_function_cannot_keep_is_refused() {
    let registry = Registry::new();
    for (text, field) in [("timeout=5s", "timeout"), ("on_lost=cancel", "on_lost")] {
        let error = registry.tune_from(&format!("forms::plain {text}")).unwrap_err();
        assert!(error.to_string().contains(&format!("`{field}`: a function that is not async")), "{error}");
        registry.tune_from(&format!("forms::bare {text}")).unwrap();
    }
    let error = registry.tune("forms::plain", |site| site.timeout = Some(S)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "timeout"), "{error}");
    registry.tune_from("forms::plain on_lost=continue").unwrap();
}
