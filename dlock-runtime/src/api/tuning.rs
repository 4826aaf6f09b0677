//! Settings of single sites from outside of the code: operations change them without a rebuild.

use dlock_contract::{Error, Result};

use crate::api::catalogue::{SiteInfo, sites};
use crate::api::registry::Registry;
use crate::options::tuning_text::{Statement, statements};
use crate::options::tunings::Tuning;
use crate::options::{Defaults, OnLost};

impl Registry {
    /// Replaces settings of the site of this name (see [`sites`]) from its next call on. They override its attribute.
    ///
    /// Calls go on meanwhile; another change, also of [`configure`](Self::configure), waits for this one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use dlock_runtime::{Registry, Tuning};
    /// let refused = Registry::new().tune("shop::deduct", |site| site.ttl = Some(Duration::from_secs(60)));
    /// assert!(refused.unwrap_err().to_string().contains("no locked function")); // there is none in this program
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) if no site has the name, if the settings
    /// contradict each other or the defaults, and for a `timeout` or `on_lost = cancel` of a function that is not async;
    /// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) inside of a change of this registry.
    /// [`verify`](Self::verify) says whether the store supports them.
    pub fn tune(&self, name: &str, change: impl FnOnce(&mut Tuning)) -> Result<()> {
        let matching = sites_of(name);
        if matching.is_empty() {
            return Err(no_site(&format!("the name {name:?}")));
        }
        let _change = self.context().changes().begin()?;
        let tunings = self.context().tunings();
        let mut tuning = tunings.get(name).unwrap_or_default();
        change(&mut tuning);
        matching.into_iter().try_for_each(|site| site.check_tuned(tuning, &self.defaults()))?;
        tunings.insert(name, tuning);
        Ok(())
    }

    /// Reads settings of sites from a text: on each line a name and settings, `shop::deduct ttl=1m wait=5s`.
    ///
    /// The values are those of the attribute; quotes are only needed around a value or a name with a blank, a comma or
    /// another sign of this text, such as `retry="5, 100ms..2s"`. A `;` ends the settings of a site, so that others can
    /// follow on the same line. A `#` outside of quotes begins a comment, which ends with its line and not at a `;`.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) with the line. The lines before it are in force.
    /// The error shows no part of the text until it is clear that the text names a site, because it may be a secret.
    pub fn tune_from(&self, text: &str) -> Result<()> {
        statements(text).iter().try_for_each(|statement| {
            let line_error = |what| Error::config("tuning", format!("line {}: {what}", statement.line));
            self.tune_as(statement).map_err(line_error)
        })
    }

    fn tune_as(&self, statement: &Statement) -> std::result::Result<(), String> {
        let name = statement.name.as_ref().map_err(|why| (*why).to_owned())?;
        if sites_of(name).is_empty() {
            // The text may be the wrong one, and a secret.
            return Err(no_site("this name").message().to_owned());
        }
        // Read once to find a mistake before anything is changed.
        let settings = statement.settings().map_err(|why| format!("{name}: {why}"))?;
        for (option, value) in &settings {
            Tuning::default().set(option, value).map_err(|why| format!("{name}: {option}: {why}"))?;
        }
        let change = |tuning: &mut Tuning| {
            for (option, value) in &settings {
                let _ = tuning.set(option, value);
            }
        };
        self.tune(name, change).map_err(|error| format!("{name}: {}", error.message()))
    }

    /// Checks that the tuned settings fit these defaults.
    pub(crate) fn check_tunings(&self, defaults: &Defaults) -> Result<()> {
        for (name, tuning) in self.context().tunings().all() {
            for site in sites_of(&name) {
                site.check_tuned(tuning, defaults).map_err(|error| {
                    let text = format!(
                        "these defaults do not go together with the settings of {name} from outside: {}",
                        error.message()
                    );
                    Error::config("tuning", text)
                })?;
            }
        }
        Ok(())
    }
}

impl SiteInfo {
    fn check_tuned(self, tuning: Tuning, defaults: &Defaults) -> Result<()> {
        if !self.0.is_async && tuning.timeout.is_some() {
            return Err(Error::config("timeout", "`timeout`: a function that is not async cannot be stopped"));
        }
        if !self.0.is_async && tuning.on_lost == Some(OnLost::Cancel) {
            return Err(Error::config("on_lost", "`on_lost`: a function that is not async cannot be cancelled"));
        }
        self.with_some_ttl(self.0.options.tuned(tuning)).resolve(defaults)?;
        Ok(())
    }
}

fn sites_of(name: &str) -> Vec<SiteInfo> {
    sites().into_iter().filter(|site| site.name() == name).collect()
}

fn no_site(name: &str) -> Error {
    let known: Vec<_> = sites().iter().map(|site| site.name()).collect();
    Error::config("name", format!("there is no locked function with {name}; these exist: {}", known.join(", ")))
}
