//! Opens a store by its URL.

use std::sync::Arc;

use dlock_contract::{Backend, Result};
use dlock_store::{Address, Clock, Opener, background};

use crate::literal::store::Literal;
use crate::lock::store::Redis;
#[cfg(feature = "redisson")]
use crate::redisson::store::Redisson;
use crate::topology::target::Target;
use crate::url::form::FORM;
use crate::url::settings::Layout;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| Box::pin(open(address, clock)))
    .checked_by(|address| Target::of(address, &Arc::default()).map(drop));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    // This reads files, and a disk may hang. A store that is opened at its first use is opened on our thread.
    let target = background()?.run_blocking(move || Target::of(&address, &Arc::default())).await??;
    Ok(match target.settings.layout {
        Layout::Own => Arc::new(Redis::open(target, clock).await?),
        Layout::Literal => Arc::new(Literal::open(target, clock).await?),
        #[cfg(feature = "redisson")]
        Layout::Redisson => Arc::new(Redisson::open(target, clock).await?),
        #[cfg(not(feature = "redisson"))]
        Layout::Redisson => return Err(without_redisson()),
    })
}

#[cfg(not(feature = "redisson"))]
fn without_redisson() -> dlock_contract::Error {
    dlock_contract::Error::config(
        "url",
        "`layout=redisson` needs the feature `redisson` of dlock-rs: cargo add dlock-rs --features redisson",
    )
}

#[cfg(all(test, not(feature = "redisson")))]
mod tests {
    use dlock_contract::ErrorKind;

    use super::*;

    #[test]
    fn without_its_feature_redissons_layout_is_refused_by_the_name_of_the_feature() {
        for url in ["redis://127.0.0.1/?layout=redisson", "redis-sentinel://a,b/main?layout=redisson&keys=literal"] {
            let address = Address::parse(url, &FORM).unwrap();
            let error = futures::executor::block_on(open(address, &Clock::system())).err().expect(url);
            assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
            assert!(error.to_string().contains("feature `redisson`"), "{error}");
        }
    }
}
