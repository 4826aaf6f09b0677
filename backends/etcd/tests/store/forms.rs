//! Programs with and without `keys=literal` in one cluster: the notes of their forms.

use dlock::Clock;
use dlock::backends::etcd::Etcd;
use dlock_contract::Backend;

use crate::server::{own, url};

/// Under the same key the other form is another lock.
#[tokio::test]
async fn a_probe_tells_of_the_other_form() {
    let server = own();
    let open = async |options: &str| Etcd::open(&format!("{}{options}", url(&server)), &Clock::system()).await.unwrap();
    let ours = open("").await;
    let second = open("").await;
    assert_eq!(ours.ready().await.unwrap().findings, [""; 0]);
    let literal = open("?keys=literal").await;
    for (store, says) in
        [(&ours, "with keys=literal"), (&second, "with keys=literal"), (&literal, "without keys=literal")]
    {
        let findings = store.ready().await.unwrap().findings;
        assert!(findings.len() == 1 && findings[0].contains(says), "{says}: {findings:?}");
    }
}

/// An operator looks for the name that an error shows in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_shows_the_name_that_foreign_clients_see() {
    let registry = dlock::Registry::new();
    registry.connect("etcd", &format!("{}?keys=literal", crate::server::shared())).await.unwrap();
    registry.set_default("etcd").unwrap();
    let (id, key) = (format!("named{}", fastrand::u64(..)), |id: &str| dlock::Key::text("jobs/").value(id));
    let held = registry.lock(key(&id)).acquire().await.unwrap();
    let busy = registry.lock(key(&id)).try_acquire().await.unwrap_err();
    assert_eq!(busy.key(), Some(format!("jobs/{id}").as_str()));
    held.release().await.unwrap();
}
