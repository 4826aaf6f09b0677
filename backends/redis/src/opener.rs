//! Opens a store by its URL.

use std::sync::Arc;

use dlock_contract::{Backend, Clock, Opener, Result};

use crate::literal::store::Literal;
use crate::lock::store::Redis;
use crate::redisson::store::Redisson;
use crate::topology::target::Target;
use crate::url::settings::Layout;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(
    &["redis", "rediss", "redis+unix", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"],
    |url, clock| Box::pin(open(url, clock)),
);

/// Opens the server behind a URL.
async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    let target = Target::parse(url)?;
    Ok(match target.settings.layout {
        Layout::Own => Arc::new(Redis::open(target, clock).await?),
        Layout::Literal => Arc::new(Literal::open(target, clock).await?),
        Layout::Redisson => Arc::new(Redisson::open(target, clock).await?),
    })
}
