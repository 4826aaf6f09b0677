//! Settings of single sites from outside of the code: operations change them without a rebuild.

use dlock_contract::{Error, Result};

use crate::api::catalogue::sites;
use crate::api::registry::Registry;
use crate::options::tunings::Tuning;

impl Registry {
    /// Replaces settings of the site of this name (see [`sites`]) from its next call on, over what its attribute says.
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
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) if no site has the name, or if the settings
    /// contradict each other or the defaults; [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) inside of a
    /// change of this registry. [`verify`](Self::verify) says whether the store supports them.
    pub fn tune(&self, name: &str, change: impl FnOnce(&mut Tuning)) -> Result<()> {
        let matching: Vec<_> = sites().into_iter().filter(|site| site.name() == name).collect();
        if matching.is_empty() {
            let known: Vec<_> = sites().iter().map(|site| site.name()).collect();
            let text = format!("there is no locked function with the name {name:?}; these exist: {}", known.join(", "));
            return Err(Error::config("name", text));
        }
        let _change = self.context().changes().begin()?;
        let tunings = self.context().tunings();
        let mut tuning = tunings.get(name).unwrap_or_default();
        change(&mut tuning);
        for site in matching {
            site.0.options.tuned(tuning).resolve(&self.defaults())?;
        }
        tunings.insert(name, tuning);
        Ok(())
    }

    /// Reads settings of sites from a text: on each line a name and settings, `shop::deduct ttl=1m wait=5s`. A line may
    /// end with `;` instead, and what comes after `#` is a comment.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) with the line; those before it are in force.
    pub fn tune_from(&self, text: &str) -> Result<()> {
        for (number, line) in text.split(['\n', ';']).enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let line_error = |what: String| Error::config("tuning", format!("line {}: {what}", number + 1));
            let mut settings = Vec::new();
            for word in words {
                let (option, value) =
                    word.split_once('=').ok_or_else(|| line_error(format!("{word:?} is not `setting=value`")))?;
                // Read the text once to find a mistake before anything is changed.
                Tuning::default().set(option, value).map_err(|why| line_error(format!("{option}: {why}")))?;
                settings.push((option, value));
            }
            let change = |tuning: &mut Tuning| {
                for (option, value) in &settings {
                    let _ = tuning.set(option, value);
                }
            };
            self.tune(name, change).map_err(|error| line_error(error.to_string()))?;
        }
        Ok(())
    }
}
