//! A candidate that leads until it is killed, and says so.

use crate::arena::TTL;

pub(crate) const ELECTION: &str = "billing";

/// Says when its body is dropped.
struct Body;

impl Drop for Body {
    fn drop(&mut self) {
        println!("the body is dropped");
    }
}

pub(super) async fn lead() {
    let leads = dlock::elect(ELECTION).ttl(TTL).lead(async |leader| {
        let _body = Body;
        println!("leads {}", leader.term());
        loop {
            tokio::time::sleep(TTL / 4).await;
            // A step after a pause would be a step without the leadership.
            if leader.check().is_err() {
                println!("the body went on");
            }
        }
    });
    leads.await.unwrap()
}
