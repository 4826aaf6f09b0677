//! Programs with and without `keys=literal` in one datacenter: the notes of their forms.

use dlock_contract::Backend;
use dlock_testkit::servers::{Consul, Instance};

use crate::rights::{ENOUGH, strict, token};
use crate::server::{open, own};

/// Under the same key the other form is another lock.
#[tokio::test]
async fn a_probe_tells_of_the_other_form() {
    let server = own();
    let [ours, second] = [open(&server.url()).await.unwrap(), open(&server.url()).await.unwrap()];
    assert_eq!(ours.ready().await.unwrap().findings, [""; 0]);
    let literal = open(&format!("{}?keys=literal", server.url())).await.unwrap();
    for (store, says) in
        [(&ours, "with keys=literal"), (&second, "with keys=literal"), (&literal, "without keys=literal")]
    {
        let findings = store.ready().await.unwrap().findings;
        assert!(findings.len() == 1 && findings[0].contains(says), "{says}: {findings:?}");
    }
}

/// Its locks are in its memory alone.
#[tokio::test]
async fn a_server_in_development_mode_is_a_finding() {
    let recipe = Consul { extra: ["-dev", "-bootstrap-expect=0"].map(Into::into).into(), ..Consul::default() };
    let server = Instance::start(recipe).unwrap();
    let store = open(&format!("consul://127.0.0.1:{}", server.port())).await.unwrap();
    let findings = store.ready().await.unwrap().findings;
    assert!(findings.len() == 1 && findings[0].contains("development mode"), "{findings:?}");
}

/// Locks do not need the endpoint that counts the members, and an agent may block it.
#[tokio::test]
async fn a_probe_needs_no_endpoint_that_locks_do_not_need() {
    let extra = vec!["-hcl=http_config { block_endpoints = [\"/v1/status\"] }".to_owned()];
    let server = Instance::start(Consul { extra, ..Consul::default() }).unwrap();
    let health = open(&server.url()).await.unwrap().ready().await.unwrap();
    assert!(health.version.is_some() && health.counts.iter().all(|(name, _)| name != "members"), "{health}");
}

#[tokio::test]
async fn a_token_that_may_not_note_the_form_opens_the_store_and_leaves_no_session() {
    let (server, raw) = strict(Vec::new());
    let secret = token(raw, &ENOUGH.replace("dl1", "jobs/"));
    let url = format!("consul://:{secret}@{}?keys=literal", server.url().replace("consul://", ""));
    let store = open(&url).await.unwrap();
    assert_eq!(store.ready().await.unwrap().findings, [""; 0]);
    let sessions = raw.json(&format!("GET /v1/session/list?token={secret}"));
    let names = sessions.as_array().unwrap().iter().map(|session| session["Name"].as_str().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("dlock")).count(), 0);
}
