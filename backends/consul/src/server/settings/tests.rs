//! The variables of Consul's own tools, by scripted look-ups.

use std::sync::OnceLock;

use dlock_contract::ErrorKind;

use super::*;

fn of(url: &str, lookup: Lookup) -> Result<Settings> {
    Settings::of(&Address::parse(url, &FORM).unwrap(), lookup)
}

fn wrong_field(url: &str, lookup: Lookup) -> String {
    match of(url, lookup).err().map(|error| (error.kind().clone(), error)) {
        Some((ErrorKind::ConfigInvalid { field }, error)) => {
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
            field
        }
        other => panic!("{other:?}"),
    }
}

/// The repository's own files take the place of certificates: they are read here, and not understood.
const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs");

fn remote(name: &str) -> Option<String> {
    let value = match name {
        "CONSUL_HTTP_ADDR" => "consul.example:8501",
        "CONSUL_HTTP_TOKEN" => "canary",
        "CONSUL_HTTP_TOKEN_FILE" => "/nowhere",
        "CONSUL_HTTP_SSL" => "true",
        "CONSUL_CACERT" | "CONSUL_CLIENT_CERT" => CA,
        "CONSUL_CLIENT_KEY" => KEY,
        "CONSUL_TLS_SERVER_NAME" => "server.dc1.consul",
        "CONSUL_NAMESPACE" => "team",
        "CONSUL_PARTITION" => "part",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn the_variables_count_where_the_url_says_nothing() {
    let settings = of("consul://", remote).unwrap();
    assert_eq!((settings.host.as_str(), settings.port), ("consul.example", 8501));
    assert_eq!(settings.token.header().unwrap(), "canary");
    assert_eq!(settings.tls_name.as_deref(), Some("server.dc1.consul"));
    assert_eq!(settings.scope, [("ns", "team".to_owned()), ("partition", "part".to_owned())]);
    let tls = settings.tls.unwrap();
    let (ca, key) = (fs::read(CA).unwrap(), fs::read(KEY).unwrap());
    assert_eq!((tls.ca, tls.identity), (Some(ca.clone()), Some((ca, key))));

    let url = "consul://:mine@127.0.0.1:8500?tls=off&namespace=mine&partition=mine";
    assert_eq!(wrong_field(url, remote), "tls", "TLS was asked for");
    let settings = of(url, |name| remote(name).filter(|_| name != "CONSUL_HTTP_SSL")).unwrap();
    assert_eq!((settings.host.as_str(), settings.port), ("127.0.0.1", 8500));
    assert_eq!(settings.token.header().unwrap(), "mine");
    assert_eq!(settings.scope, [("ns", "mine".to_owned()), ("partition", "mine".to_owned())]);
    assert!(settings.tls.is_none());
}

#[test]
fn without_variables_it_is_the_agent_of_this_host_in_clear_text() {
    let settings = of("consul://", |_| None).unwrap();
    assert_eq!((settings.host.as_str(), settings.port), ("127.0.0.1", 8500));
    assert!(settings.token.header().is_none() && settings.tls.is_none() && settings.scope.is_empty());
    assert!(settings.tls_name.is_none());
}

#[test]
fn an_address_says_by_its_scheme_whether_it_speaks_tls() {
    let https = of("consul://", |name| (name == "CONSUL_HTTP_ADDR").then(|| "https://c.example".into())).unwrap();
    assert!((https.host.as_str(), https.port) == ("c.example", 8500) && https.tls.is_some());
    let http = of("consul://", |name| match name {
        "CONSUL_HTTP_ADDR" => Some("http://c.example:1".into()),
        "CONSUL_HTTP_SSL" => Some("1".into()),
        _ => None,
    });
    assert!(http.unwrap().tls.is_some(), "TLS was asked for");
    let plain = of("consul://", |name| (name == "CONSUL_HTTP_ADDR").then(|| "http://c.example:1".into()));
    assert!(plain.unwrap().tls.is_none(), "nobody asked for it");
    // Without a word about TLS no token goes to another host.
    assert_eq!(
        wrong_field("consul://", |name| (name == "CONSUL_HTTP_ADDR").then(|| "c.example".into())),
        "CONSUL_HTTP_ADDR"
    );
}

#[tokio::test]
async fn a_token_file_is_read_and_read_again_after_a_refusal() {
    static FILE: OnceLock<String> = OnceLock::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "the-token\n").unwrap();
    FILE.set(file.display().to_string()).unwrap();
    let settings = of("consul://", |name| FILE.get().filter(|_| name == "CONSUL_HTTP_TOKEN_FILE").cloned());
    let token = settings.unwrap().token;
    let first = token.header();
    assert_eq!(first.as_ref().unwrap(), "the-token");
    assert_eq!(token.replaced(first.as_ref()).await, None);
    // A file that is being written changes nothing.
    for half_written in ["", "the next"] {
        fs::write(&file, half_written).unwrap();
        assert_eq!(token.replaced(first.as_ref()).await, None);
    }
    fs::write(&file, "next-token").unwrap();
    assert_eq!(token.replaced(first.as_ref()).await.unwrap(), "next-token");
    // A request that left with the old one learns of the new one too.
    assert_eq!(token.replaced(first.as_ref()).await.unwrap(), "next-token");
    assert_eq!(
        wrong_field("consul://", |name| (name == "CONSUL_HTTP_TOKEN_FILE").then(|| "/canary".into())),
        "CONSUL_HTTP_TOKEN_FILE"
    );
}

#[test]
fn what_is_not_understood_is_refused_by_its_name_and_without_its_value() {
    fn only(name: &str, wanted: &str, value: &str) -> Option<String> {
        (name == wanted).then(|| value.to_owned())
    }
    for (url, lookup, field) in [
        ("consul://127.0.0.1", (|name| only(name, "CONSUL_HTTP_AUTH", "me:canary")) as Lookup, "CONSUL_HTTP_AUTH"),
        ("consul://", |name| only(name, "CONSUL_HTTP_ADDR", "unix:///canary"), "CONSUL_HTTP_ADDR"),
        ("consul://", |name| only(name, "CONSUL_HTTP_ADDR", "http://me:canary@c.example"), "CONSUL_HTTP_ADDR"),
        ("consul://", |name| only(name, "CONSUL_HTTP_SSL", "canary"), "CONSUL_HTTP_SSL"),
        ("consul://c.example?ca=/canary", |name| only(name, "CONSUL_HTTP_SSL", "false"), "tls"),
        ("consul://", |name| only(name, "CONSUL_HTTP_TOKEN", "a canary"), "CONSUL_HTTP_TOKEN"),
        ("consul://c.example?tls=verify", |name| only(name, "CONSUL_HTTP_SSL_VERIFY", "0"), "CONSUL_HTTP_SSL_VERIFY"),
        ("consul://c.example?tls=verify", |name| only(name, "CONSUL_CAPATH", "/canary"), "CONSUL_CAPATH"),
        ("consul://c.example?tls=verify", |name| only(name, "CONSUL_CACERT", "/canary"), "CONSUL_CACERT"),
        ("consul://c.example?tls=verify", |name| only(name, "CONSUL_CLIENT_CERT", CA), "CONSUL_CLIENT_CERT"),
        ("consul://c.example?tls=verify", |name| only(name, "CONSUL_CLIENT_KEY", KEY), "CONSUL_CLIENT_CERT"),
    ] {
        assert_eq!(wrong_field(url, lookup), field);
    }
}
