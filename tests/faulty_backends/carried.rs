//! How the reference store takes a release that asks for the next caller.

use std::sync::Arc;

use dlock_contract::{BootInstant, Claim, Queue};

use crate::lies::Lie;
use crate::server::{Answer, Grant, Server};

impl Server {
    /// Was it released, and what was asked for the next one?
    pub(crate) fn release_to(
        &self,
        claim: &Claim,
        next: &Arc<Claim>,
        until: BootInstant,
        client: u64,
        wall: u64,
    ) -> (bool, Answer) {
        let name = self.name(&claim.key);
        let ours = self.holder(&name) == Some(claim.owner);
        if self.tells(Lie::CarriedComesFirst) && ours {
            let mut state = self.state();
            state.remove(&name, |_| true);
            return (true, Answer::Granted(self.grant(&mut state, &name, next, client, wall)));
        }
        if self.tells(Lie::CarriesFromAnybody) && !ours {
            self.state().remove(&name, |_| true);
        }
        let released = self.tells(Lie::CarriesLateIsFine) | self.end(claim, None, None, client, wall);
        let answer = match self.ask(next, Queue::until(until), client, wall) {
            Answer::Granted(grant) if self.tells(Lie::CarriesOldToken) => {
                Answer::Granted(Grant { token: grant.token - 1, ..grant })
            }
            answer => answer,
        };
        self.cut(Lie::CarriesShort, &mut self.state(), &name, &next.owner, next.ttl);
        (released, answer)
    }
}
