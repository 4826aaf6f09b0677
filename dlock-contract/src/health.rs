//! The answer of a readiness probe of a store.

use crate::profile::Durability;

/// The result of [`Backend::ready`](crate::Backend::ready) for a store that answers.
///
/// ```
/// use dlock_contract::Health;
///
/// let health = Health::new().version("Redis 7.0.15").finding("it keeps no append-only file: set appendonly yes");
/// assert_eq!(health.to_string(), "ready: Redis 7.0.15; it keeps no append-only file: set appendonly yes");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The product and its version, if the store reports them.
    pub version: Option<String>,
    /// The part that the server plays, such as `primary`, if there are several.
    pub role: Option<String>,
    /// Settings of the server that a promise depends on, as name and value, such as `appendonly` and `yes`. Safe values are listed too.
    pub settings: Vec<(String, String)>,
    /// The failures that a grant survives with these settings. `None`: as the [profile](crate::Profile) says.
    pub durability: Option<Durability>,
    /// Everything that makes a promise smaller, each with its advice. None of them keeps the store from taking locks.
    pub findings: Vec<String>,
    /// Numbers by name: `members` that vote on a grant, and what the store has counted since it was opened, such as deadlocks that
    /// cost it a second request.
    pub counts: Vec<(String, u64)>,
}

impl Health {
    /// The health of a store that takes locks and reports nothing more.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the product and its version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Adds the part that the server plays.
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = Some(role.into());
        self
    }

    /// Adds a setting. If several servers of the store have different values, it has all of them.
    ///
    /// ```
    /// let health = dlock_contract::Health::new().setting("appendonly", "yes").setting("appendonly", "no").setting("appendonly", "no");
    /// assert_eq!(health.settings, [("appendonly".to_owned(), "yes, no".to_owned())]);
    /// ```
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        match self.settings.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) if values.split(", ").any(|known| known == value) => {}
            Some((_, values)) => *values += &format!(", {value}"),
            None => self.settings.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn count(mut self, what: impl Into<String>, number: u64) -> Self {
        self.counts.push((what.into(), number));
        self
    }

    /// Adds one finding, with its advice.
    #[must_use]
    pub fn finding(mut self, finding: impl Into<String>) -> Self {
        self.findings.push(finding.into());
        self
    }
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ready")?;
        let counts = self.counts.iter().filter(|(_, number)| *number > 0);
        let counts: Vec<_> = counts.map(|(what, number)| format!("{what}: {number}")).collect();
        let known = [&self.version, &self.role].into_iter().flatten().chain(&self.findings).chain(&counts);
        for (number, text) in known.enumerate() {
            write!(f, "{} {text}", if number == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}
