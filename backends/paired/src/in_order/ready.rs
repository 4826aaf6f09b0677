//! Whether the two stores grant locks now.

use std::time::Duration;

use dlock_contract::{Error, Health, LockKey, Result};

use crate::in_order::InOrder;

/// How long a probe waits for a first store that can be bypassed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

impl InOrder {
    /// Asks both stores. If the first store is down and can be bypassed, this is a finding and not an error.
    pub(crate) async fn ready(&self) -> Result<Health> {
        let (first, second) = futures::join!(self.first_ready(), self.second.ready());
        let second = second.map_err(|error| self.error_of_second(error))?;
        let [name, _] = self.kind.names();
        let first = match first.map_err(|error| self.error_of_first(error)) {
            Err(error) if self.bypass.is_some() && error.is_retryable() => {
                let finding = format!("{}; locks are taken without the {name}", error.message());
                return Ok(self.merge_health(None, second).finding(finding));
            }
            first => first?,
        };
        Ok(self.merge_health(Some(first), second))
    }

    /// Whether both stores take locks of this namespace. A first store that is down and can be bypassed was found by
    /// [`ready`](Self::ready).
    pub(crate) async fn admits(&self, key: &LockKey) -> Result<()> {
        let (first, second) = futures::join!(self.first.admits(key), self.second.admits(key));
        second.map_err(|error| self.error_of_second(error))?;
        match first.map_err(|error| self.error_of_first(error)) {
            Err(error) if self.bypass.is_some() && error.is_retryable() => Ok(()),
            first => first,
        }
    }

    /// Asks the first store. If it can be bypassed, its silence must not delay the second store's answer.
    async fn first_ready(&self) -> Result<Health> {
        if self.bypass.is_none() {
            return self.first.ready().await;
        }
        let by = self.clock.now().after(PROBE_TIMEOUT);
        let ready = self.clock.timeout_at(by, self.first.ready()).await;
        ready.unwrap_or_else(|| Err(Error::outage(format!("it did not answer within {PROBE_TIMEOUT:?}"))))
    }

    fn merge_health(&self, first: Option<Health>, second: Health) -> Health {
        let names = self.kind.names();
        let parts: Vec<_> = names.into_iter().zip([first, Some(second)]).collect();
        let known = || parts.iter().filter_map(|(name, health)| Some((*name, health.as_ref()?)));
        let listed = |of: fn(&Health) -> Option<&String>| {
            let texts: Vec<_> = known().filter_map(|(name, health)| Some(format!("{name}: {}", of(health)?))).collect();
            (!texts.is_empty()).then(|| texts.join(", "))
        };
        let mut health = Health::new();
        health.version = listed(|health| health.version.as_ref());
        health.role = listed(|health| health.role.as_ref());
        let findings =
            known().flat_map(|(name, health)| health.findings.iter().map(move |text| format!("{name}: {text}")));
        health.findings = findings.collect();
        let settings = known().flat_map(|(name, health)| health.settings.iter().map(move |setting| (name, setting)));
        health.settings = settings.map(|(name, (what, value))| (format!("{name}: {what}"), value.clone())).collect();
        let counts =
            known().flat_map(|(name, health)| health.counts.iter().map(move |(what, number)| (name, what, number)));
        health.counts = counts.map(|(name, what, number)| (format!("{name}: {what}"), *number)).collect();
        health
    }
}
