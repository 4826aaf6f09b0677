//! A `main` with arguments is none.

#[dlock::distributed_lock(key = "a")]
fn main(arguments: Vec<String>) -> Result<(), dlock::Error> {
    drop(arguments);
    Ok(())
}
