//! Checks the options of a call against the profile of its store, before any request.

use std::time::Duration;

use dlock_contract::{Backend, Claim, Error, ErrorKind, Fencing, Mode, Profile, TtlRange};

use futures::future::BoxFuture;

use crate::options::Options;

/// Refuses options that the store does not support, before any request.
pub(crate) fn check(store: &dyn Backend, claim: &Claim, options: &Options) -> Result<(), Error> {
    let profile = store.profile();
    check_ttl(profile, claim.ttl)?;
    check_options(store, options)?;
    if claim.key.as_str().len() > profile.max_key_bytes {
        return Err(Error::new(
            ErrorKind::KeyTooLong { max: profile.max_key_bytes },
            format!("this store allows keys of at most {} encoded bytes; shorten the key", profile.max_key_bytes),
        ));
    }
    Ok(())
}

pub(crate) fn check_ttl(profile: &Profile, ttl: Duration) -> Result<(), Error> {
    let TtlRange { min, max, step, .. } = profile.ttl;
    if ttl < min || ttl > max {
        return Err(Error::new(
            ErrorKind::TtlOutOfRange { min, max },
            format!("a ttl of {ttl:?} is outside this store's range of {min:?} to {max:?}"),
        ));
    }
    if step > Duration::ZERO && !ttl.as_nanos().is_multiple_of(step.as_nanos()) {
        return Err(Error::new(
            ErrorKind::TtlOutOfRange { min, max },
            format!("a ttl of {ttl:?} is not a multiple of {step:?}, which this store requires"),
        ));
    }
    Ok(())
}

pub(crate) fn check_options(store: &dyn Backend, options: &Options) -> Result<(), Error> {
    let profile = store.profile();
    let missing = match options.mode {
        Mode::Read | Mode::Write if !profile.read_write => Some("read and write locks"),
        Mode::Permits(_) if !profile.permits => Some("permits"),
        _ if options.fair && !profile.fair => Some("serving waiters in order (`fair`)"),
        _ if options.min_hold.is_some() && store.keeps().is_none() => Some("min_hold"),
        _ if options.once_per.is_some() && store.periods().is_none() => Some("once_per"),
        _ if options.fence && profile.fencing == Fencing::None => Some("fencing tokens"),
        _ if options.cohort.is_some() && store.tokens().is_none() => {
            Some("passing a lock on inside a process (`cohort`)")
        }
        _ => None,
    };
    match missing {
        None => Ok(()),
        Some(what) => Err(unsupported(what)),
    }
}

/// The answer of a store that does not offer the power for this option.
pub(crate) fn refused<'a, T: Send + 'a>(what: &'static str) -> BoxFuture<'a, Result<T, Error>> {
    Box::pin(async move { Err(unsupported(what)) })
}

fn unsupported(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported { need: format!("a store that can do {what}") },
        format!("this store cannot do {what}"),
    )
}
