//! A release that also takes the lock for the next caller of this process, in one request to the session that has it.
//!
//! A caller that waits in the server is served first: the server gives it the lock as the lock is freed. The next
//! caller then waits behind it.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, BootInstant, Claim, Exchange, Hold, HoldId, Mode, Queue, Released, Result, Signal, Wake,
};
use futures::future::BoxFuture;

use super::dialect::NamedDialect;
use super::failure::Answered;
use super::grant::{self, Exchanged};
use super::held::Held;
use super::shared::{NamedShared, hold_of};
use super::store::NamedLock;

/// The answer: whether the lock was held, and the next caller's hold.
type HandoverAnswer<D> = (bool, Option<Result<Arc<Held<D>>>>);

impl<D: NamedDialect> Exchange for NamedLock<D> {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let held = hold.session::<Held<D>>().filter(|held| self.shared.fits(held, &hold.claim, next));
            let asked = held.and_then(|held| Some((held, self.shared.exchange(held, next)?)));
            let (released, granted) = match asked {
                None => (self.release(hold).await?, None),
                Some((held, asked)) => match self.shared.ended_by(held, asked).await? {
                    Some((false, _)) => (Released::NotOwner, None),
                    Some((true, granted)) => (Released::Released, granted),
                    None => (Released::Released, None),
                },
            };
            if let Some(Ok(granted)) = granted {
                return Ok((released, Some(Attempt::Acquired(hold_of(granted, next)?))));
            }
            if next.key != hold.claim.key {
                return Ok((released, None));
            }
            // Others have the lock, or the exchange did not ask for it.
            let ask_again = || Attempt::Contended(Wake::on(async { Ok(Signal::Ask) }));
            let asked = self.shared.bounded(self.shared.attempt(next, Queue::until(until))).await;
            Ok((released, Some(asked.unwrap_or_else(|_| ask_again()))))
        })
    }
}

impl<D: NamedDialect> NamedShared<D> {
    /// Whether the next caller may have the place of this hold.
    fn fits(&self, held: &Held<D>, claim: &Claim, next: &Claim) -> bool {
        let is_plain = |claim: &Claim| claim.mode == Mode::Exclusive && claim.renewed;
        let is_same = next.key == claim.key && next.ttl == held.session().ttl();
        is_same && is_plain(claim) && is_plain(next) && self.context.dialect.takes_at_once(&held.lock)
    }

    /// Releases the hold and asks for the next caller. `None` if the hold has ended. The request is sent even if nobody
    /// awaits its answer.
    fn exchange(
        self: &Arc<Self>,
        held: &Held<D>,
        next: &Arc<Claim>,
    ) -> Option<impl Future<Output = Answered<HandoverAnswer<D>>> + use<D>> {
        let lock = self.context.lock_of(&next.key).ok()?;
        let (mut place, told) = held.give_place(HoldId::of(&next.owner))?;
        let (shared, claim, pending_attempt) = (self.clone(), next.clone(), self.pending_attempts.begin(next.owner));
        Some(held.session().ask_in_any_case(pending_attempt, move |context, conn| {
            Box::pin(async move {
                let (answer, after) = grant::exchange(context, conn, place.session().id(), &claim, &lock).await;
                let answer = answer.map(|exchanged| match exchanged {
                    Exchanged::NotHeld => (false, None),
                    Exchanged::Freed => (true, None),
                    Exchanged::Granted(granted) => {
                        place.note_release(false);
                        (true, Some(shared.hold(place, lock, &claim, granted)))
                    }
                });
                if let Ok((was_held, _)) = &answer {
                    told.send_replace(Some(*was_held));
                }
                (answer, after)
            })
        }))
    }
}
