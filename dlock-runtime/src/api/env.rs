//! Backends and defaults from the environment: one variable per backend.

use std::time::Duration;

use dlock_contract::{Error, Result};

use crate::api::connect::UrlTable;
use crate::api::registry::Registry;
use crate::options::Wait;

/// `DLOCK_URL_<NAME>` installs a backend under the name in lower case.
const URL_PREFIX: &str = "DLOCK_URL_";

impl Registry {
    /// Installs what the environment names, and gives the names.
    ///
    /// | variable | meaning | example |
    /// | --- | --- | --- |
    /// | `DLOCK_URL_<NAME>` | a backend, installed as `<name>` in lower case | `DLOCK_URL_REDIS=redis://127.0.0.1/` |
    /// | `DLOCK_CONNECT` | `now`, as [`connect`](Self::connect) does, or `lazy`, as [`connect_lazy`](Self::connect_lazy) does. Default: `now` | `lazy` |
    /// | `DLOCK_DEFAULT` | the default backend's name | `redis` |
    /// | `DLOCK_NAMESPACE` | the service's name, first part of every key | `shop` |
    /// | `DLOCK_TTL` | a duration | `30s` |
    /// | `DLOCK_WAIT` | a duration, `none` or `forever` | `10s` |
    /// | `DLOCK_MAX_HOLD` | a duration | `1h` |
    /// | `DLOCK_TUNE` | settings of single sites, see [`tune_from`](Self::tune_from) | `shop::deduct ttl=1m; nightly wait=none` |
    /// | `DLOCK_TUNE_FILE` | a file with such settings; `DLOCK_TUNE` has the last word | `/etc/shop/locks` |
    ///
    /// Durations are written as in the attribute.
    ///
    /// If it fails or is dropped, it leaves no store installed, so that it can be called again, such as when a store is
    /// down at the start. Defaults and settings of sites stay as far as they were read.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](crate::ErrorKind::ConfigInvalid) naming the variable, without its value but for the path
    /// of a file that cannot be read; and what [`connect`](Self::connect) fails with.
    pub async fn connect_from_env(&self) -> Result<Vec<String>> {
        // Collected first: the iterator over the environment is not `Send`, and this may be awaited in a spawned task.
        let variables: Vec<_> = std::env::vars_os()
            // Names that are not text are not dlock's. A value that is not text is reported where it is used.
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok())))
            .collect();
        self.connect_from(variables.into_iter()).await
    }

    /// As [`connect_from_env`](Self::connect_from_env), with these variables. For tests.
    #[doc(hidden)]
    pub async fn connect_from(&self, variables: impl Iterator<Item = (String, Option<String>)>) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        let mut default = None;
        let mut is_lazy = false;
        let (mut tune_file, mut tune) = (None, None);
        let mut new_defaults = (*self.defaults()).clone();
        for (name, value) in variables.filter(|(name, _)| name.starts_with("DLOCK_")) {
            let value = value.ok_or_else(|| Error::config(name.as_str(), "the variable's value is not valid UTF-8"));
            match name.as_str() {
                "DLOCK_NAMESPACE" => new_defaults.namespace = value?,
                "DLOCK_TTL" => new_defaults.ttl = duration(&name, &value?)?,
                "DLOCK_MAX_HOLD" => new_defaults.max_hold = duration(&name, &value?)?,
                "DLOCK_WAIT" => new_defaults.wait = wait(&name, &value?)?,
                "DLOCK_CONNECT" => {
                    is_lazy = match value?.as_str() {
                        "now" => false,
                        "lazy" => true,
                        _ => return Err(Error::config(name.as_str(), "DLOCK_CONNECT must be `now` or `lazy`")),
                    }
                }
                "DLOCK_DEFAULT" => default = Some(value?),
                "DLOCK_TUNE" => tune = Some(value?),
                "DLOCK_TUNE_FILE" => tune_file = Some(value?),
                // Other names may belong to others: Kubernetes sets DLOCK_PORT for a service called dlock.
                other => {
                    if let Some(backend) = other.strip_prefix(URL_PREFIX) {
                        urls.push((backend.to_ascii_lowercase(), name.clone(), value?));
                    }
                }
            }
        }
        self.configure(|defaults| *defaults = new_defaults)?;
        // Before the stores are opened: a mistake in a setting needs none of them.
        if let Some(path) = tune_file {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::config("DLOCK_TUNE_FILE", format!("{path} cannot be read")).because(error))?;
            self.tune_by("DLOCK_TUNE_FILE", &text)?;
        }
        if let Some(text) = tune {
            self.tune_by("DLOCK_TUNE", &text)?;
        }
        urls.sort();
        let names = urls.iter().map(|(backend, ..)| backend.clone()).collect();
        let mut installed = Installed { registry: self, names: Vec::new() };
        installed.connect_all(urls, is_lazy).await?;
        if let Some(default) = default {
            self.set_default(&default)?;
        }
        installed.names.clear();
        Ok(names)
    }

    fn tune_by(&self, variable: &str, text: &str) -> Result<()> {
        self.tune_from(text).map_err(|error| Error::config(variable, format!("{variable}: {}", error.message())))
    }
}

/// The stores that a call has installed. If it fails or is dropped, they are taken out, so that it can be made again.
struct Installed<'a> {
    registry: &'a Registry,
    names: Vec<String>,
}

impl Installed<'_> {
    /// Opens the stores of these names, variables and URLs. A store that is made of others comes after them.
    async fn connect_all(&mut self, mut urls: Vec<(String, String, String)>, is_lazy: bool) -> Result<()> {
        while !urls.is_empty() {
            let table = UrlTable::of_program()?;
            let waits_for_member = |url: &str| {
                let members = (table.members)(url);
                urls.iter().any(|(backend, ..)| members.contains(backend))
            };
            let Some(next) = urls.iter().position(|(_, _, url)| !waits_for_member(url)) else {
                let variables: Vec<_> = urls.iter().map(|(_, variable, _)| variable.as_str()).collect();
                let text = format!("these stores are made of each other: {}", variables.join(", "));
                return Err(Error::config(variables[0], text));
            };
            let (backend, _, url) = urls.remove(next);
            match is_lazy {
                true => self.registry.connect_lazy(&backend, &url)?,
                false => self.registry.connect(&backend, &url).await?,
            }
            self.names.push(backend);
        }
        Ok(())
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        // A store that is made of others goes before them.
        self.names.iter().rev().for_each(|name| self.registry.uninstall(name));
    }
}

// Values are not shown: a variable may have been filled with the wrong secret.

fn duration(variable: &str, text: &str) -> Result<Duration> {
    let error = |_| Error::config(variable, format!("{variable} must be a duration such as 30s, 1m30s or 500ms"));
    dlock_values::duration(text).map_err(error)
}

fn wait(variable: &str, text: &str) -> Result<Wait> {
    let text_of_error = format!("{variable} must be `none`, `forever` or a duration such as 30s, 1m30s or 500ms");
    dlock_values::wait(text).map_err(|_| Error::config(variable, text_of_error))
}
