//! The requests to one lock, for all lock modes: which file answers which.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Ending, Mode, Result, RunEnd, Stand};

use crate::asked::{Asked, ask, nanos};
use crate::fault::is_bound_reached;
use crate::line::Connected;
use crate::site::Site;
use crate::{exclusive, runs, schema, shares};

pub(super) async fn acquire(turn: &mut Connected, site: &Site, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
    let time = &site.time;
    let asked = Asked::new(claim, time)?;
    let answer = match ask(turn.conn(), &asked, time).await {
        Err(error) if is_bound_reached(&error) => {
            schema::reserve(turn.conn(), time).await.map_err(|error| turn.fault(error))?;
            ask(turn.conn(), &asked, time).await
        }
        answer => answer,
    };
    if let Some(granted) = answer.map_err(|error| turn.fault(error))? {
        return asked.acquired(granted);
    }
    match (claim.mode, claim.once_per.as_deref()) {
        (Mode::Exclusive, None) => exclusive::refused(turn, &asked).await,
        (Mode::Exclusive, Some(once)) => runs::refused(turn, &asked, *once).await,
        _ => shares::refused(turn, &asked, stand).await,
    }
}

pub(super) async fn free(turn: &mut Connected, site: &Site, claim: &Claim) -> Result<bool> {
    match claim.mode {
        Mode::Exclusive => exclusive::free(turn, claim).await,
        _ => shares::free(turn, claim, site.time.boot(), site.time.now()?).await,
    }
}

pub(super) async fn finish(turn: &mut Connected, site: &Site, claim: &Claim, ending: Ending) -> Result<bool> {
    let time = &site.time;
    let now = time.now()?;
    let keep = ending.keep.map(|keep| now.stored.saturating_add(nanos(keep)));
    let alone = claim.mode == Mode::Exclusive;
    if let (Some(RunEnd::Succeeded { took }), None, true) = (ending.run, claim.once_per.as_deref(), alone) {
        runs::record(turn, time, claim, took).await?;
    }
    match (ending.run.filter(|_| claim.once_per.is_some()), keep) {
        (None, None) => free(turn, site, claim).await,
        (Some(run), keep) => runs::end(turn, time, claim, run, keep).await,
        (None, Some(until)) if alone => exclusive::keep(turn, claim, until).await,
        (None, Some(until)) => shares::keep(turn, claim, time.boot(), now, until).await,
    }
}

pub(super) async fn give_up(turn: &mut Connected, site: &Site, claim: &Claim) -> Result<()> {
    if claim.mode == Mode::Write {
        shares::wait_no_more(turn, claim).await?;
    }
    if let Some(once) = claim.once_per.as_deref() {
        runs::give_back(turn, claim, *once).await?;
    }
    free(turn, site, claim).await.map(drop)
}
