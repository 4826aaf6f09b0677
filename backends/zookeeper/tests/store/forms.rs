//! Programs with other chroots, and with `keys=literal`, in one ensemble: the notes of their forms.

use dlock_contract::Backend;

use crate::kit::{opened, own};

/// Under the same key each of them is another lock.
#[tokio::test]
async fn a_probe_tells_of_the_other_forms_and_chroots() {
    let server = own();
    let open = async |rest: &str| opened(&format!("{}{rest}", server.url())).await;
    let (ours, second) = (open("/app").await, open("/app").await);
    assert_eq!(ours.ready().await.unwrap().findings, [""; 0]);
    let (root, beside, above) = (open("").await, open("/kafka").await, open("/team/app").await);
    let literal = open("/app?keys=literal").await;
    let told = async |store: &dlock::backends::zookeeper::ZooKeeper| store.ready().await.unwrap().findings.join("; ");
    for (store, says) in [
        (&ours, &["without a chroot without keys", "the chroot /kafka without keys", "this chroot with keys"][..]),
        (&second, &["this chroot with keys"]),
        (&root, &["the chroot /app without keys", "the chroot /app with keys", "the chroot /kafka without"]),
        (&beside, &["without a chroot without", "the chroot /app with keys"]),
        (&above, &["without a chroot without", "the chroot /kafka without"]),
        (&literal, &["this chroot without keys"]),
    ] {
        let told = told(store).await;
        for text in says {
            assert!(told.contains(text), "{text}: {told}");
        }
    }
    assert!(!told(&above).await.contains("/team"), "its own form");
}
