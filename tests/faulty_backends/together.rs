//! Several locks of the reference store in one step.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::Claim;

use crate::lies::Lie;
use crate::server::{Grant, Server, State};

/// Asks for all locks; `None` if one is taken.
pub(crate) async fn ask(server: &Arc<Server>, claims: &[Arc<Claim>], client: u64, wall: u64) -> Option<Vec<Grant>> {
    if server.tells(Lie::TogetherRunsOn) {
        let (server, claims) = (server.clone(), claims.to_vec());
        let task = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            server.ask_all(&claims, client, wall)
        });
        return task.await.ok().flatten();
    }
    if server.tells(Lie::TogetherInTwoSteps) {
        let open = server.are_open(&mut server.state(), claims, wall);
        if !open {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        return Some(server.take_all(&mut server.state(), claims, client, wall));
    }
    server.ask_all(claims, client, wall)
}

impl Server {
    pub(crate) fn ask_all(&self, claims: &[Arc<Claim>], client: u64, wall: u64) -> Option<Vec<Grant>> {
        let mut state = self.state();
        if self.are_open(&mut state, claims, wall) {
            return Some(self.take_all(&mut state, claims, client, wall));
        }
        if self.tells(Lie::TogetherTakesSome) {
            for claim in claims {
                if self.is_open(&mut state, claim) {
                    state.traces.push((self.name(&claim.key), "one of several".into()));
                }
            }
        }
        None
    }

    fn are_open(&self, state: &mut State, claims: &[Arc<Claim>], wall: u64) -> bool {
        claims.iter().for_each(|claim| self.tidy(state, &self.name(&claim.key), wall));
        claims.iter().all(|claim| self.is_open(state, claim))
    }

    /// Whether the lock is free without waiters, or already this owner's.
    fn is_open(&self, state: &mut State, claim: &Claim) -> bool {
        let name = self.name(&claim.key);
        let ours = state.records(&name).iter().any(|record| record.owner == claim.owner && !record.kept);
        if ours {
            return !self.tells(Lie::TogetherRefusesOwn);
        }
        let next = self.tells(Lie::TogetherOvertakes) || self.is_next(state, &name, claim);
        next && self.admits(state, &name, claim.mode)
    }

    fn take_all(&self, state: &mut State, claims: &[Arc<Claim>], client: u64, wall: u64) -> Vec<Grant> {
        let take = |claim: &Arc<Claim>| {
            let (name, now) = (self.name(&claim.key), self.now(wall));
            let again = self.again(state, &name, claim, now);
            let mut grant = again.unwrap_or_else(|| self.grant(state, &name, claim, client, wall));
            self.cut(Lie::TogetherIsShort, state, &name, &claim.owner, claim.ttl);
            if self.tells(Lie::TogetherKeepsTokens) && grant.token > 1 {
                grant.token -= 1;
            }
            grant
        };
        claims.iter().map(take).collect()
    }
}
