//! The body is polled in place, so it may hold values that cannot go to another thread.

use std::cell::RefCell;
use std::rc::Rc;

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "<id>")]
async fn local(id: u64, seen: Rc<RefCell<Vec<u64>>>) -> Result<(), Error> {
    let here = Rc::clone(&seen);
    tokio::task::yield_now().await;
    here.borrow_mut().push(id);
    Ok(())
}

pub(crate) fn make() {
    drop(local(1, Rc::default()));
}
