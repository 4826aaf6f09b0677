//! Whether two stores take locks now.

use dlock_contract::{Health, Result};

use crate::in_order::InOrder;

impl InOrder {
    /// Asks both stores. A first store that is passed over while it is down is a finding then, and no error.
    pub(crate) async fn ready(&self) -> Result<Health> {
        let (first, second) = futures::join!(self.first.ready(), self.second.ready());
        let second = second.map_err(|error| self.by_second(error))?;
        let [name, _] = self.kind.names();
        let first = match first.map_err(|error| self.by_first(error)) {
            Err(error) if self.bypass.is_some() && error.is_retryable() => {
                let finding = format!("{}; locks are taken without the {name}", error.message());
                return Ok(self.together(None, second).finding(finding));
            }
            first => first?,
        };
        Ok(self.together(Some(first), second))
    }

    fn together(&self, first: Option<Health>, second: Health) -> Health {
        let names = self.kind.names();
        let parts: Vec<_> = names.into_iter().zip([first, Some(second)]).collect();
        let known = || parts.iter().filter_map(|(name, health)| Some((*name, health.as_ref()?)));
        let listed = |of: fn(&Health) -> Option<&String>| {
            let said: Vec<_> = known().filter_map(|(name, health)| Some(format!("{name}: {}", of(health)?))).collect();
            (!said.is_empty()).then(|| said.join(", "))
        };
        let mut health = Health::new();
        health.version = listed(|health| health.version.as_ref());
        health.role = listed(|health| health.role.as_ref());
        let findings =
            known().flat_map(|(name, health)| health.findings.iter().map(move |text| format!("{name}: {text}")));
        health.findings = findings.collect();
        health
    }
}
