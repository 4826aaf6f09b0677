//! The body is polled in place: it may hold what cannot go to another thread.

use std::cell::RefCell;
use std::rc::Rc;

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "<id>", backend = "not installed")]
async fn local(id: u64, seen: Rc<RefCell<Vec<u64>>>) -> Result<(), Error> {
    let here = Rc::clone(&seen);
    tokio::task::yield_now().await;
    here.borrow_mut().push(id);
    Ok(())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let _ = tokio::task::spawn_local(local(1, Rc::default())).await;
    });
}
