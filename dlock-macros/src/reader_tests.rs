//! Every form of every option, and every mistake in one.

use std::time::Duration;

use super::*;
use crate::table::{LOCK, REFERENCE};
use crate::values::{Given, Mode, Renew, Wait};
use crate::written::Parsed;

fn read(attribute: &str) -> Result<Args, Vec<String>> {
    let mut mistakes = Vec::new();
    let args = super::read(&LOCK, attribute.parse().expect("tokens"), &mut mistakes);
    if mistakes.is_empty() { Ok(args) } else { Err(mistakes.iter().map(ToString::to_string).collect()) }
}

fn mistake(attribute: &str) -> String {
    let found = read(attribute).err().expect(attribute);
    assert_eq!(found.len(), 1, "{attribute}: {found:?}");
    found.concat()
}

/// The option reference, written from the tables.
fn reference() -> String {
    let mut page = String::from(
        "# Options\n\n\
         This page is written from the tables in `dlock-macros/src/table.rs`; a test keeps the two the same.\n",
    );
    for (spec, about) in REFERENCE {
        page += &format!("\n## `#[{}]`\n\n{about}\n\n", spec.attribute);
        page += "| option | forms | default | meaning |\n| --- | --- | --- | --- |\n";
        for OptionSpec { name, forms, default, doc, .. } in spec.table {
            page += &format!("| `{name}` | {forms} | {default} | {doc} |\n");
        }
    }
    page
}

#[test]
fn the_reference_page_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/options.md");
    if std::env::var_os("DLOCK_BLESS").is_some() {
        std::fs::write(&path, reference()).expect("write the page");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(page, reference(), "docs/options.md is stale: run this test with DLOCK_BLESS=1");
}

#[test]
fn every_form_is_read() {
    for attribute in [
        r#"key = "a", ttl = "30s", backend = "redis", wait = "5s", renew = "5s","#,
        r#"key = "a", ttl = TTL, backend = names::MAIN, wait = config.wait, renew = true"#,
        r#"key = order_key(&order), ttl = max::<A, B>(x, y), wait = "none", renew = false, fair"#,
        r#"key = "a", wait = "forever", attempts = 5, backoff = "100ms..5s", max_waiters = 10, cohort = "64/3s""#,
        r#"keys = ["a:<x>", "b:<y>"], mode = read, fair = true, cohort = false, reentrant, on_lost = continue"#,
        r#"keys = "a:<x..>", mode = "write", reentrant = false, on_lost = "cancel", retry = "5, 100ms..2s""#,
        r#"key = "a", mode = permits(3), cohort = true, max_hold = "1h", timeout = "5s", min_hold = "1s", retry = 5"#,
        r#"key = "a", mode = "permits(3)", once_per = "1m", offset = "30s", rerun = "on_crash", on_busy = skip, retry = false"#,
        r#"key = "a", rerun = on_crash, once_per = "1m", on_busy = call(Self::other), on_outage = "skip", retry = false"#,
        r#"key = "a", on_busy = "call(<T as Other>::other)", on_outage = error, guard = held, fence = r#fn, retry = "5""#,
        r#"key = "a", name = "label", crate = ::lib::dlock, on_busy = error, cohort = "64", mode = exclusive, sensitive"#,
        r#"key = "a", wait = none, cohort = 64, attempts = ATTEMPTS, max_waiters = limits::WAITERS, mode = permits(N * 2)"#,
        r#"key = "a", wait = forever, renew = EVERY, max_hold = LONG, timeout = Duration::from_secs(1), min_hold = A, once_per = B"#,
        r#"key = "a", crate = "crate::other""#,
    ] {
        if let Err(mistakes) = read(attribute) {
            panic!("{attribute}: {mistakes:?}");
        }
    }
}

#[test]
fn options_are_read_as_the_values_that_they_state() {
    let args = read(
        r#"key = "a", mode = "permits(3)", cohort = "64/3s", retry = "5, 100ms..2s", renew = "5s", wait = "none""#,
    );
    let args = args.expect("valid");
    assert!(matches!(args.mode, Some(Parsed { value: Some(Mode::Permits(Given::Literal(3))), .. })));
    let cohort = args.cohort.and_then(|cohort| cohort.value).flatten().expect("a cohort");
    assert_eq!((cohort.passes, cohort.span), (64, Some(Duration::from_secs(3))));
    let retry = args.retry.and_then(|retry| retry.value).expect("retry");
    assert_eq!((retry.times, retry.pauses), (5, Some((Duration::from_millis(100), Duration::from_secs(2)))));
    assert!(
        matches!(args.renew, Some(Parsed { value: Some(Renew::Every(Given::Literal(every))), .. }) if every == Duration::from_secs(5))
    );
    assert!(matches!(args.wait, Some(Parsed { value: Some(Given::Literal(Wait::None)), .. })));
}

#[test]
fn one_mistake_has_one_message() {
    for (attribute, part) in [
        ("", "`key` is missing"),
        ("key = 1", "`key`: expected a template in quotes"),
        ("key", "`key` needs a value"),
        ("key =", "`key` needs a value"),
        (r#"key("a")"#, r#"write `=` here, as in `key = "stock:<id>"`"#),
        (r#"key: "a""#, "write `=` here"),
        (r#"key = format!("a:{id}")"#, "write `key = \"stock:<id>\"`"),
        (r#"key = "a", key = "b""#, "`key` is given twice"),
        ("keys = []", "there is no key in the list"),
        (r#"keys = ["a", b]"#, "expected templates in quotes"),
        (r#"key = "a", tll = "1s""#, "unknown option `tll`; did you mean `ttl`?"),
        (r#"key = "a", at_most = "1s""#, "unknown option `at_most`; did you mean `ttl`?"),
        (r#"key = "a", colour = "red""#, "unknown option `colour`; the options are `key`, `keys`, `ttl`"),
        (r#"key = "a", ttl = 30"#, r#"`ttl`: a number needs a unit, and quotes: write `"30s"` for seconds"#),
        (r#"key = "a", ttl = 30s"#, r#"write `"30s"` for seconds"#),
        (r#"key = "a", ttl = true"#, "`ttl`: expected a duration in quotes, such as `\"30s\"`, or an expression"),
        (r#"key = "a", ttl = "30""#, r#"`ttl`: `30` has no unit: write `"30s"` for seconds"#),
        (r#"key = "a", wait = "never""#, r#"or write `"none"` or `"forever"`"#),
        (r#"key = "a", wait = "0s""#, r#"not to wait is `wait = "none"`"#),
        (r#"key = "a", renew = "often""#, "or write `true` or `false`"),
        (r#"key = "a", backend = """#, "`backend`: the name is empty"),
        (r#"key = "a", backend = "a\nb""#, "`backend`: the name has a control character"),
        (r#"key = "a", backend = 5"#, "`backend`: expected a name"),
        (r#"key = "a" ttl = "30s""#, "expected `,`"),
        (
            r#"key = "a", max_hold = true"#,
            "`max_hold`: expected a duration in quotes, such as `\"30s\"`, or a `const` of type",
        ),
        (r#"key = "a", attempts = 0"#, "`attempts`: expected 1 or more"),
        (r#"key = "a", attempts = "3""#, "`attempts`: a count has no quotes: write `3`"),
        (r#"key = "a", attempts = "some""#, "`attempts`: expected a count, such as `3`, or a `const` of type `u32`"),
        (r#"key = "a", max_waiters = 99999999999"#, "`max_waiters`: `99999999999` is no count"),
        (r#"key = "a", fair(true)"#, "write `=` here, as in `fair = true`"),
        (r#"key = "a", fair = "yes""#, "`fair`: expected `true` or `false`"),
        (r#"key = "a", backoff = "5s..100ms""#, "write `\"100ms..5s\"`"),
        (r#"key = "a", backoff = "5s""#, "`backoff`: expected two durations"),
        (r#"key = "a", mode = shared"#, "`mode`: `shared` is not known; expected `exclusive`"),
        (r#"key = "a", mode = raed"#, "did you mean `read`?"),
        (r#"key = "a", mode = permits"#, "write `permits(3)`"),
        (r#"key = "a", mode = permits(0)"#, "the least is `permits(1)`"),
        (r#"key = "a", mode = permits(true)"#, "`permits` takes a count"),
        (r#"key = "a", mode = Mode::Read"#, "an expression is not allowed here: write `exclusive`"),
        (r#"key = "a", fair = cfg!(unix)"#, "an expression is not allowed here: write `true` or `false`"),
        (r#"key = "a", on_lost = policy()"#, "an expression is not allowed here: write `cancel` or `continue`"),
        (r#"key = "a", backoff = BACKOFF"#, "an expression is not allowed here: write two durations"),
        (r#"key = "a", retry = RETRIES"#, "an expression is not allowed here: write `false`, a count"),
        (r#"key = "a", retry = 0"#, "never to ask again is written `retry = false`"),
        (r#"key = "a", retry = "0, 1s..2s""#, "never to ask again is written `retry = false`"),
        (r#"key = "a", retry = "none""#, "never to ask again is written `retry = false`"),
        (r#"key = "a", cohort = 0"#, "with no pass allowed there is no cohort: write `false`"),
        (r#"key = "a", cohort = PASSES"#, "an expression is not allowed here: write `true`"),
        (r#"key = "a", name = NAME"#, "an expression is not allowed here: write a name in quotes"),
        (r#"key = "a", cohort = "many""#, "`cohort`: expected `true`"),
        (r#"key = "a", on_busy = call"#, "which function?"),
        (r#"key = "a", on_busy = call(a, 5)"#, "expected the path of one function"),
        (r#"key = "a", on_busy = call("a")"#, "expected the path of one function"),
        (r#"key = "a", on_busy = wait"#, "waiting is set by `wait = \"5s\"`"),
        (r#"key = "a", max_waiters = 0"#, "not to wait is `wait = \"none\"`"),
        (r#"key = "a", guard = mut held"#, "`guard`: leave out `mut`: write `guard = held`"),
        (r#"key = "a", on_busy = skp"#, "did you mean `skip`?"),
        (r#"key = "a", on_lost = abort"#, "`abort` is not known; expected `cancel` or `continue`"),
        (r#"key = "a", on_outage = continue"#, "`continue` is not known; expected `error` or `skip`"),
        (r#"key = "a", rerun = true"#, "`rerun`: expected `on_crash`"),
        (r#"key = "a", retry = true"#, "`retry`: expected `false`, a count"),
        (r#"key = "a", retry = "5, 2s..1s""#, "write `\"1s..2s\"`"),
        (
            r#"key = "a", guard = "held""#,
            "`guard`: expected a name for it in the body, without quotes, such as `guard = held`",
        ),
        (r#"key = "a", guard = self"#, "`guard`: expected a name"),
        (
            r#"key = "a", guard = Held"#,
            "`guard`: a name in the body begins with a small letter, such as `guard = held`",
        ),
        (
            r#"key = "a", fence = true"#,
            "`fence`: expected a name for it in the body, without quotes, such as `fence = token`",
        ),
        (r#"key = "a", name = """#, "`name`: the name is empty"),
        (r#"key = "a", name = label"#, "`name`: an expression is not allowed here: write a name in quotes"),
        (r#"key = "a", crate = "a b""#, "`crate`: expected the path"),
    ] {
        let found = mistake(attribute);
        assert!(found.contains(part), "{attribute}: {found}");
    }
}

#[test]
fn all_mistakes_are_found_at_once() {
    let found = read(r#""stock", tll = "1s", ttl = 30, renew = 5, wait = "x", backend = """#).err().expect("mistakes");
    assert_eq!(found.len(), 6, "and none about a missing key: {found:#?}");
}
