//! Every form of every option, and every mistake in one.

use super::*;

fn read(attribute: &str) -> Result<Args, Vec<String>> {
    let mut mistakes = Vec::new();
    let args = Args::parse(attribute.parse().expect("tokens"), &mut mistakes);
    if mistakes.is_empty() { Ok(args) } else { Err(mistakes.iter().map(ToString::to_string).collect()) }
}

fn mistake(attribute: &str) -> String {
    let found = read(attribute).err().expect(attribute);
    assert_eq!(found.len(), 1, "{attribute}: {found:?}");
    found.concat()
}

/// The option reference, written from the table.
fn reference() -> String {
    let mut page = String::from(
        "# Options of `#[distributed_lock]`\n\n\
         This page is written from the table in `dlock-macros/src/args.rs`; a test keeps the two the same.\n\n\
         | option | forms | default | meaning |\n| --- | --- | --- | --- |\n",
    );
    for Row { name, forms, default, doc, .. } in TABLE {
        page += &format!("| `{name}` | {forms} | {default} | {doc} |\n");
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
fn every_option_is_read() {
    let args = read(r#"key = "a", ttl = "30s", backend = "redis", wait = "5s", renew = "5s","#).expect("valid");
    assert_eq!(args.key.expect("key").value(), "a");
    assert_eq!(args.ttl.expect("ttl").value, Duration::from_secs(30));
    assert!(matches!(args.backend, Some(Expr::Lit(_))));
    assert!(matches!(args.wait, Some(Wait::UpTo(limit)) if limit == Duration::from_secs(5)));
    assert!(matches!(args.renew.expect("renew").value, Renew::Every(every) if every == Duration::from_secs(5)));
}

#[test]
fn every_other_form_is_read() {
    let args = read(r#"key = "a", wait = "none", renew = true, backend = names::MAIN"#).expect("valid");
    assert!(matches!(args.wait, Some(Wait::None)));
    assert!(matches!(args.renew.expect("renew").value, Renew::Auto));
    assert!(matches!(args.backend, Some(Expr::Path(_))));
    let args = read(r#"key = "a", wait = "forever", renew = false"#).expect("valid");
    assert!(matches!(args.wait, Some(Wait::Forever)));
    assert!(matches!(args.renew.expect("renew").value, Renew::Off));
}

#[test]
fn one_mistake_has_one_message() {
    for (attribute, part) in [
        ("", "`key` is missing"),
        ("key = 1", "`key`: expected a string literal"),
        ("key", "`key` needs a value"),
        ("key =", "`key` needs a value"),
        (r#"key("a")"#, "`key` needs a value"),
        (r#"key = "a", key = "b""#, "`key` is given twice"),
        (r#"key = "a", tll = "1s""#, "unknown option `tll`; did you mean `ttl`?"),
        (r#"key = "a", colour = "red""#, "unknown option `colour`; the options are `key`, `ttl`"),
        (r#"key = "a", on_lost = "abort""#, "`on_lost` is not supported in this version"),
        (r#"key = "a", crate = lk"#, "`crate` is not supported in this version"),
        (r#"key = "a", ttl = 30"#, r#"`ttl`: a number needs a unit, and quotes: write `"30s"` for seconds"#),
        (r#"key = "a", ttl = 30s"#, r#"write `"30s"` for seconds"#),
        (r#"key = "a", ttl = soon"#, "`ttl`: expected a duration in quotes"),
        (r#"key = "a", ttl = "30""#, "`ttl`: `30` is not a duration"),
        (r#"key = "a", wait = "never""#, r#"or write `"none"` or `"forever"`"#),
        (r#"key = "a", wait = "0s""#, r#"or write `"none"` or `"forever"`"#),
        (r#"key = "a", renew = "often""#, "or write `true` or `false`"),
        (r#"key = "a", backend = """#, "`backend`: the name is empty"),
        (r#"key = "a", backend = "a\nb""#, "`backend`: the name has a control character"),
        (r#"key = "a", backend = 5"#, "`backend`: expected a name"),
        (r#"key = "a" ttl = "30s""#, "expected `,`"),
    ] {
        let found = mistake(attribute);
        assert!(found.contains(part), "{attribute}: {found}");
    }
}

#[test]
fn all_mistakes_are_found_at_once() {
    let found = read(r#""stock", tll = "1s", ttl = 30, renew = 5, wait = "x", backend = """#).err().expect("mistakes");
    assert_eq!(found.len(), 7, "{found:#?}");
}
