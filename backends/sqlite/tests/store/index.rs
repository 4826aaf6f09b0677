//! The file that ends in `-shm` is removed while the database is open. Who opens the database then has another index, and sees
//! no commits of those who were there before.

use std::env;
use std::fs;
use std::time::Duration;

use dlock::Clock;
use dlock::backends::sqlite::Sqlite;
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim, confirm, take, token};
use dlock_testkit::wait_until;

use crate::store::{Store, TTL, is_held};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_index_a_file_is_opened_anew_and_no_lock_is_given_twice() {
    let store = Store::on_real_time();
    let (one, idle) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    fs::remove_file(store.folder.path().join("locks.db-shm")).unwrap();
    let child = tokio::task::spawn_blocking({
        let url = store.url();
        move || {
            let mut child = Child::spawn("new index", &[("URL", &url)]).unwrap();
            let token: u64 = child.wait_line("token ", LIMIT).unwrap().parse().unwrap();
            (child, token)
        }
    });
    let (mut child, theirs) = child.await.unwrap();
    assert!(theirs > token(&hold));
    // Neither from the connection that has the old index nor from one that is opened beside it.
    for _ in 0..3 {
        let answer = one.try_acquire(&claim("b", TTL), Queue::Leave).await;
        assert!(!matches!(answer, Ok(dlock_contract::Attempt::Acquired(_))), "two holders");
    }
    drop(idle);
    wait_until("the file is open again", async || one.renew(&[&hold]).await.remove(0).is_ok()).await.unwrap();
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a hold ended with the index");
    wait_until("the file is open for callers", async || one.ready().await.is_ok()).await.unwrap();
    assert!(is_held(&one, "b").await, "the commit of another process is not seen");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    child.kill9().unwrap();
}

/// The child's part.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold_in_child() {
    let store = Sqlite::open(&env::var("URL").unwrap(), &Clock::system()).await.unwrap();
    assert!(is_held(&store, "a").await, "the holder of before is not seen");
    let hold = take(&store, &claim("b", TTL)).await;
    println!("token {}", token(&hold));
    std::thread::sleep(LIMIT);
}
