//! Tokens and their rights, on a server that refuses everybody else.

use std::sync::LazyLock;
use std::time::Duration;

use dlock::{ErrorKind, Registry, Wait};
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::{HangingFile, text_of, wait_until};
use serde_json::{Value, json};

use crate::server::{LONG, Raw, fresh, open, process, renewal};

const MASTER: &str = "6f1f3c0e-6a0e-4a39-9b5d-5f0a4c8f2b11";

/// A server on which a token needs rights.
pub(crate) fn strict(mut extra: Vec<String>) -> (Instance, Raw) {
    extra.push(format!(r#"-hcl=acl{{enabled=true default_policy="deny" tokens{{master="{MASTER}"}}}}"#));
    let recipe = Strict(servers::Consul { extra, ..servers::Consul::default() });
    let server = Instance::start(recipe).unwrap();
    let raw = Raw::at(&server.url());
    (server, raw)
}

/// Its check needs the token too.
struct Strict(servers::Consul);

impl servers::Recipe for Strict {
    fn name(&self) -> &'static str {
        "consul-acl"
    }

    fn command(&self, folder: &std::path::Path, port: u16) -> dlock_testkit::Result<std::process::Command> {
        self.0.command(folder, port)
    }

    fn ask(&self, addr: std::net::SocketAddr, request: &str) -> std::io::Result<String> {
        self.0.ask(addr, request)
    }

    fn check(&self, addr: std::net::SocketAddr) -> std::io::Result<()> {
        self.ask(addr, &format!(r#"PUT /v1/session/create?token={MASTER} {{"TTL":"10s"}}"#)).map(drop)
    }

    fn url(&self, port: u16) -> String {
        self.0.url(port)
    }
}

/// A token with this rule.
pub(crate) fn token(raw: Raw, rules: &str) -> String {
    let name = fresh("policy");
    let policy = json!({"Name": name, "Rules": rules});
    raw.ask(&format!("PUT /v1/acl/policy?token={MASTER} {policy}")).unwrap();
    let token: Value = raw.json(&format!("PUT /v1/acl/token?token={MASTER} {}", json!({"Policies": [{"Name": name}]})));
    token["SecretID"].as_str().unwrap().to_owned()
}

pub(crate) const ENOUGH: &str = r#"node_prefix "dlock-" { policy = "write" } session_prefix "dlock-" { policy = "write" }
    key_prefix "dl1" { policy = "write" }"#;

static SERVER: LazyLock<(Instance, Raw)> = LazyLock::new(|| strict(Vec::new()));

#[tokio::test]
async fn three_rights_are_enough_for_everything_and_the_token_may_stand_in_a_file() {
    let (server, raw) = &*SERVER;
    let secret = token(*raw, ENOUGH);
    let host = server.url().replace("consul://", "");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{secret}\n")).unwrap();
    for url in [
        format!("consul://:{secret}@{host}?lock_delay=0s"),
        format!("consul://{host}?lock_delay=0s&token_file={}", file.path().display()),
    ] {
        let store = open(&url).await.unwrap();
        let claim = claim(&fresh("rights"), LONG);
        let hold = take(&store, &claim).await;
        let ended = hold.session.as_ref().unwrap().ended().unwrap();
        let session = raw.json(&format!("GET /v1/session/list?token={secret}"));
        let session =
            session.as_array().unwrap().iter().find(|s| s["Name"] == claim.key.as_str()).unwrap()["ID"].clone();
        let holder = store.look(&claim.key).await.unwrap().holders.remove(0);
        // The right to read the agent is not needed; without it the version is not told.
        assert_eq!(store.ready().await.unwrap().version, None);
        raw.ask(&format!("PUT /v1/session/destroy/{}?token={secret}", session.as_str().unwrap())).unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(10), ended).await.expect("the token cannot list sessions");
        let again = take(&store, &claim).await;
        assert!(holder.id.is_some());
        assert_eq!(store.release(&again).await.unwrap(), Released::Released);
        assert!(!format!("{store:?}").contains(&secret));
    }
}

#[tokio::test]
async fn a_token_that_was_replaced_in_its_file_is_used_without_a_restart() {
    let (server, raw) = &*SERVER;
    let [first, next] = [token(*raw, ENOUGH), token(*raw, ENOUGH)];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &first).unwrap();
    let host = server.url().replace("consul://", "");
    let store = open(&format!("consul://{host}?lock_delay=0s&token_file={}", file.path().display())).await.unwrap();
    let claim = claim(&fresh("rotated"), LONG);
    let hold = take(&store, &claim).await;
    let accessor = raw.json(&format!("GET /v1/acl/token/self?token={first}"))["AccessorID"].clone();
    raw.ask(&format!("DELETE /v1/acl/token/{}?token={MASTER}", accessor.as_str().unwrap())).unwrap();
    // A refusal is no loss.
    let error = renewal(&store, &hold).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && !text_of(&error).contains(&first), "{error}");
    std::fs::write(file.path(), &next).unwrap();
    assert!(matches!(renewal(&store, &hold).await.unwrap(), Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_token_file_that_hangs_holds_up_nothing_but_the_requests_that_need_it() {
    let (server, raw) = &*SERVER;
    let [first, next] = [token(*raw, ENOUGH), token(*raw, ENOUGH)];
    let (folder, hangs) = (tempfile::tempdir().unwrap(), HangingFile::new().unwrap());
    let file = folder.path().join("token");
    std::fs::write(&file, &first).unwrap();
    let host = server.url().replace("consul://", "");
    let store = open(&format!("consul://{host}?lock_delay=0s&token_file={}", file.display())).await.unwrap();
    let other = process("").await;
    let held = take(&other, &claim(&fresh("beside"), LONG)).await;
    let hold = take(&store, &claim(&fresh("hangs"), LONG)).await;
    let accessor = raw.json(&format!("GET /v1/acl/token/self?token={first}"))["AccessorID"].clone();
    raw.ask(&format!("DELETE /v1/acl/token/{}?token={MASTER}", accessor.as_str().unwrap())).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(hangs.path(), &file).unwrap();
    let refused = renewal(&store, &hold);
    let beside = async {
        loop {
            let renewed = tokio::time::timeout(LONG, renewal(&other, &held)).await;
            let renewed = renewed.expect("dlock's own thread reads the file");
            assert!(matches!(renewed.unwrap(), Standing::Renewed(_)));
        }
    };
    let error = tokio::select! {
        biased;
        refused = refused => refused.unwrap_err(),
        () = beside => unreachable!(),
    };
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    // The reader waits for it still.
    tokio::task::spawn_blocking(move || hangs.answer(&next)).await.unwrap().unwrap();
    wait_until("the next token", async || matches!(renewal(&store, &hold).await, Ok(Standing::Renewed(_))))
        .await
        .unwrap();
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_token_file_that_hangs_while_its_store_is_opened_holds_up_no_other_store() {
    let file = HangingFile::new().unwrap();
    let registry = Registry::new();
    registry.connect_lazy("hangs", &format!("consul://127.0.0.1:1?token_file={}", file.path().display())).unwrap();
    // It is opened on dlock's own thread, which also ends the wait of this call.
    let asked = registry.lock("key").backend("hangs").ttl(Duration::from_secs(3)).wait(Wait::None).acquire();
    let asked = tokio::spawn(asked);
    let has_ended = async || asked.is_finished();
    wait_until("the call to end, although its file hangs", has_ended).await.unwrap();
    assert_eq!(*asked.await.unwrap().unwrap_err().kind(), ErrorKind::Outage);
}

#[tokio::test]
async fn a_right_that_is_missing_is_told_when_the_store_is_opened() {
    let (server, raw) = &*SERVER;
    let host = server.url().replace("consul://", "");
    let write = |kind: &str, name: &str| format!(r#"{kind}_prefix "{name}" {{ policy = "write" }} "#);
    let (nodes, sessions, keys) = (write("node", "dlock-"), write("session", "dlock-"), write("key", "dl1"));
    let no_keys = token(*raw, &format!(r#"{nodes} {sessions} key_prefix "dl1" {{ policy = "read" }}"#));
    let no_sessions = token(*raw, &format!("{nodes} {keys}"));
    let wrong = "11111111-2222-3333-4444-555555555555".to_owned();
    for secret in [no_keys, no_sessions, wrong] {
        let error = open(&format!("consul://:{secret}@{host}")).await.unwrap_err();
        assert!(*error.kind() == ErrorKind::PermissionDenied && !error.is_retryable(), "{error}");
        assert!(text_of(&error).contains("session_prefix") && !text_of(&error).contains(&secret), "{error}");
    }
    let error = open(&server.url()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[tokio::test]
async fn a_node_that_cannot_be_registered_is_told_and_one_that_is_there_needs_no_right() {
    let (server, raw) = strict(Vec::new());
    let secret = token(raw, &ENOUGH.replace("node_prefix", "query_prefix"));
    let url = format!("consul://:{secret}@{}", server.url().replace("consul://", ""));
    let error = open(&url).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && text_of(&error).contains("node_prefix"), "{error}");
    for digit in "0123456789abcdef".chars() {
        let node = json!({"Node": format!("dlock-{digit}"), "Address": "192.0.2.1"});
        raw.ask(&format!("PUT /v1/catalog/register?token={MASTER} {node}")).unwrap();
    }
    let store = open(&url).await.unwrap();
    take(&store, &claim(&fresh("registered"), LONG)).await;
}

#[tokio::test]
async fn a_literal_name_outside_of_the_rights_is_refused_at_its_first_attempt() {
    let (server, raw) = &*SERVER;
    let secret = token(*raw, &ENOUGH.replace("dl1", "jobs/"));
    let url = format!("consul://:{secret}@{}?keys=literal", server.url().replace("consul://", ""));
    let store = open(&url).await.unwrap();
    let key = |text| dlock::LockKey::new("shop", dlock::Key::text(text)).unwrap();
    let allowed = dlock_testkit::holds::claim_on(&key("jobs/a"), LONG, |_| ());
    let hold = take(&store, &allowed).await;
    store.ready().await.expect("a probe outside of the rights");
    store.release(&hold).await.unwrap();
    let other = dlock_testkit::holds::claim_on(&key("other/a"), LONG, |_| ());
    let error = store.try_acquire(&other, Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
}
