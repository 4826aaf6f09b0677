//! Writes that carry a fencing token and are refused once a higher one was seen.

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// May a write with `fence` go ahead where the lock `key` was last seen with the token `seen`?
#[cfg(any(feature = "mysql", feature = "sqlite"))]
fn judge(fence: &crate::Fence, key: &[u8], seen: u64) -> crate::Result<()> {
    if key != fence.key().as_str().as_bytes() {
        let text = "the resource belongs to another lock: tokens of different locks cannot be compared";
        return Err(crate::Error::new(crate::ErrorKind::FenceInvalid, text).with_key(fence.key().as_str()));
    }
    if seen > fence.get() {
        return Err(crate::Error::fence_stale(fence, seen));
    }
    Ok(())
}

/// The same bound for all databases, so that a program can move.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
fn check_name(resource: &str) -> crate::Result<()> {
    if resource.is_empty() || resource.len() > 512 {
        return Err(crate::Error::config("resource", "the name of a fenced resource has 1 to 512 bytes"));
    }
    Ok(())
}
