//! Claims, holds and grants, translated between a caller's key and the literal name of its lock.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Hold, Result, Signal, Standing};
use futures::FutureExt;
use futures::future::BoxFuture;

/// The claim with the literal name of its lock.
pub fn under_its_name(claim: &Claim) -> Result<Arc<Claim>> {
    let key = claim.key.literal()?;
    Ok(Arc::new(Claim::clone(claim).with(|claim| claim.key = key)))
}

/// The hold as the plain backend knows it, with the literal name.
pub fn inside(hold: &Hold) -> Result<Hold> {
    Ok(hold.for_claim(under_its_name(&hold.claim)?))
}

/// Translates several holds. If one has no literal name, it was never granted, and all get the error.
pub fn all_inside(holds: &[&Hold]) -> std::result::Result<Vec<Hold>, Vec<Result<Standing>>> {
    let named = holds.iter().map(|hold| inside(hold)).collect::<Result<Vec<_>>>();
    named.map_err(|error| holds.iter().map(|_| Err(error.again())).collect())
}

/// Gives a grant, now or by its wake, to the claim as the caller made it.
pub fn for_claim(attempt: Attempt, claim: &Arc<Claim>) -> Attempt {
    let claim = claim.clone();
    let granted = |hold: Hold| hold.for_claim(claim);
    match attempt {
        Attempt::Acquired(hold) => Attempt::Acquired(granted(hold)),
        Attempt::Contended(mut wake) => {
            let translated = move |signal| match signal {
                Signal::Granted(hold) => Signal::Granted(granted(hold)),
                Signal::Ask => Signal::Ask,
            };
            wake.signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
                Box::pin(signal.map(move |news| news.map(translated)))
            });
            Attempt::Contended(wake)
        }
        Attempt::AlreadyRun => Attempt::AlreadyRun,
    }
}
