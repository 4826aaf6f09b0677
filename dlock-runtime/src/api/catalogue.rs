//! All annotated functions of the program: listed, checked at the start, and explained to its operators.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use dlock_contract::engine::without_names;
use dlock_contract::{Error, Key, Mode, OncePer, Result};
use dlock_store::line;
use dlock_values::LONGEST;

use crate::acquire::context::Found;
use crate::api::registry::Registry;
use crate::options::supported::{check_options, check_ttl};
use crate::options::{Defaults, Options, Otherwise, Wait};
use crate::site::{Registered, Site};

/// One annotated function; see [`sites`].
#[derive(Clone, Copy)]
pub struct SiteInfo(pub(crate) &'static Site);

/// Every annotated function that is linked into the program, also those that were never called, by file and line.
#[must_use]
pub fn sites() -> Vec<SiteInfo> {
    let mut sites: Vec<_> = inventory::iter::<Registered>.into_iter().map(|site| SiteInfo(site.0)).collect();
    sites.sort_by_key(|site| (site.0.file, site.0.line, site.0.name));
    sites
}

impl SiteInfo {
    /// The path of the function, or what `name = "…"` says: the label in events and the name for [`Registry::tune`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// The template of the key, or of each of several keys; the text of the expression where the key is computed.
    #[must_use]
    pub fn templates(&self) -> &'static [&'static str] {
        self.0.templates
    }

    /// The file of the attribute.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.0.file
    }

    /// The line of the attribute.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.0.line
    }

    /// The name of the backend; `None` for the default one, and where an expression names it at each call.
    #[must_use]
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The lock mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.options.mode
    }

    /// The ttl of the attribute.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.0.options.ttl
    }

    /// The wait of the attribute.
    #[must_use]
    pub fn wait(&self) -> Option<Wait> {
        self.0.options.wait
    }

    /// The periods of the attribute, of which each has at most one run.
    #[must_use]
    pub fn once_per(&self) -> Option<OncePer> {
        self.0.options.once_per
    }

    /// The key, if it is one and the same for all calls: a template without values.
    #[must_use]
    pub fn fixed_key(&self) -> Option<Key> {
        match self.0.templates {
            [template] if !self.0.computed && !template.contains(['<', '>']) => Some(Key::text(template)),
            _ => None,
        }
    }

    fn per_call(self, option: &str) -> bool {
        self.0.per_call.contains(&option)
    }

    /// If each call gives its own ttl, the check uses the longest one that it may give. Options that do not fit that
    /// ttl fit no other.
    pub(crate) fn with_some_ttl(self, mut options: Options) -> Options {
        if self.per_call("ttl") {
            options.ttl = options.ttl.or(options.max_hold).or(Some(LONGEST));
        }
        options
    }
}

impl fmt::Debug for SiteInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}] at {}:{}", self.name(), self.templates().join(", "), self.file(), self.line())
    }
}

/// The findings of [`verify`](crate::verify): every site that cannot work, with the reason.
#[derive(Debug)]
pub struct Unusable(pub(crate) Vec<(SiteInfo, Error)>);

impl Unusable {
    /// Each finding.
    pub fn iter(&self) -> impl Iterator<Item = (&SiteInfo, &Error)> {
        self.0.iter().map(|(site, error)| (site, error))
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the locked functions cannot be served by their stores:", self.0.len())?;
        for (site, error) in &self.0 {
            write!(f, "\n  {} ({}:{}): {error}", site.name(), site.file(), site.line())?;
        }
        Ok(())
    }
}

impl StdError for Unusable {}

impl Registry {
    /// Checks every annotated function of the program: is its backend installed, and can it do what is asked of it,
    /// with the defaults and tunings as they are now? Do two of them give one key to locks that do not mix?
    ///
    /// Asks no store anything. It repeats what the stores have said so far: why one could not be opened, why
    /// [`ready`](Self::ready) found that one takes no locks, and a ttl that one has refused itself. Call it once at the
    /// start, after the backends were installed. The abilities of a store are known when it is open. For a store that
    /// is connected lazily, call it after [`ready`](Self::ready). The [findings](crate::Health::findings) of the last `ready` are
    /// no errors: it logs each one as a warning.
    ///
    /// # Errors
    /// All that was found, at once.
    pub fn verify(&self) -> std::result::Result<(), Unusable> {
        let mut found: Vec<_> =
            sites().into_iter().filter_map(|site| self.verify_site(site).err().map(|error| (site, error))).collect();
        self.verify_families(&mut found);
        self.warn_of_findings();
        if found.is_empty() { Ok(()) } else { Err(Unusable(found)) }
    }

    fn verify_site(&self, site: SiteInfo) -> Result<()> {
        let options = self.context().tuned(site.name(), site.0.options);
        let resolved = site.with_some_ttl(options).resolve(&self.defaults())?;
        if site.per_call("backend") {
            return Ok(());
        }
        let missing = |error| self.context().opening_error(site.backend()).unwrap_or(error);
        let store = match self.context().find(site.backend()).map_err(missing)? {
            Found::Open(store) => store,
            // Its profile is not known yet. A failure that a retry can mend is no finding.
            Found::Lazy(lazy) => {
                let failed = self.context().opening_error(Some(&lazy.name));
                return failed.filter(|error| !error.is_retryable()).map_or(Ok(()), Err);
            }
        };
        let named = |error: Error| error.with_backend(&store.name);
        let ttl = (!self.is_of_call(site, "ttl")).then_some(resolved.ttl);
        if let Some(ttl) = ttl {
            check_ttl(store.backend.profile(), ttl).map_err(named)?;
        }
        check_options(&*store.backend, &options).map_err(named)?;
        store.findings.check(ttl).map_err(named)
    }

    /// Logs what makes a promise of a store smaller, as far as it is known.
    fn warn_of_findings(&self) {
        for found in self.context().stores() {
            let Found::Open(store) = found else { continue };
            for finding in store.findings.warnings() {
                let backend = store.name.clone();
                line(move || {
                    tracing::warn!(target: "dlock", backend = &*backend, finding, "a promise of this store is smaller");
                });
            }
        }
    }

    /// Whether each call computes this option. A tuning by an operator wins over that.
    fn is_of_call(&self, site: SiteInfo, option: &str) -> bool {
        let tuning = self.context().tunings().get(site.name()).unwrap_or_default();
        let is_tuned = match option {
            "ttl" => tuning.ttl.is_some(),
            "wait" => tuning.wait.is_some(),
            _ => false,
        };
        site.per_call(option) && !is_tuned
    }

    /// Two sites whose keys can be the same must ask for locks that mix.
    fn verify_families(&self, found: &mut Vec<(SiteInfo, Error)>) {
        let mut first: BTreeMap<(String, String), SiteInfo> = BTreeMap::new();
        for site in sites() {
            let Ok(store) = self.context().find(site.backend()) else { continue };
            if site.0.computed || site.per_call("backend") {
                continue;
            }
            for template in site.templates() {
                let other = *first.entry((store.name().to_owned(), without_names(template))).or_insert(site);
                if !other.mode().mixes_with(site.mode()) {
                    let text = format!(
                        "{} ({}:{}) uses the key {template:?} too, with another lock mode: {:?} and {:?} do not mix; give one of them another key",
                        other.name(),
                        other.file(),
                        other.line(),
                        site.mode(),
                        other.mode(),
                    );
                    found.push((site, Error::config("mode", text)));
                }
            }
        }
    }

    /// The settings of every annotated function of the program: its own options, the tunings and the defaults put
    /// together; to be read (`{}`) or, with the feature `json`, to be processed.
    #[must_use]
    pub fn explain(&self) -> Explained {
        let defaults = self.defaults();
        Explained(sites().into_iter().map(|site| self.explain_site(site, &defaults)).collect())
    }

    fn explain_site(&self, site: SiteInfo, defaults: &Defaults) -> Explanation {
        let options = self.context().tuned(site.name(), site.0.options);
        let backend = self.context().find(site.backend());
        let resolved = options.resolve(defaults).or_else(|_| site.with_some_ttl(options).resolve(defaults));
        let mut settings = match resolved {
            Ok(resolved) => options.settings(&resolved),
            Err(error) => vec![("error", error.to_string())],
        };
        settings.push(("on_busy", otherwise(site.0.on_busy).to_owned()));
        settings.push(("on_outage", otherwise(site.0.on_outage).to_owned()));
        for (name, value) in &mut settings {
            if self.is_of_call(site, name) {
                *value = "an expression".to_owned();
            }
        }
        Explanation {
            name: site.name(),
            keys: site.templates().to_vec(),
            backend: match backend {
                _ if site.per_call("backend") => "an expression".to_owned(),
                Ok(Found::Open(store)) => format!("{} ({})", store.name, store.backend.profile().kind),
                Ok(Found::Lazy(lazy)) => format!("{} (not opened yet)", lazy.name),
                Err(_) => format!("{} (not installed)", site.backend().unwrap_or("the default")),
            },
            place: format!("{}:{}", site.file(), site.line()),
            settings,
        }
    }
}

/// The settings of one annotated function; see [`Registry::explain`].
#[derive(Debug)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
struct Explanation {
    name: &'static str,
    keys: Vec<&'static str>,
    backend: String,
    place: String,
    #[cfg_attr(feature = "json", serde(serialize_with = "as_map"))]
    settings: Vec<(&'static str, String)>,
}

/// The settings of all annotated functions; see [`Registry::explain`].
#[derive(Debug)]
pub struct Explained(Vec<Explanation>);

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Explanation { name, keys, backend, place, settings } in &self.0 {
            writeln!(f, "{name}  ({place})")?;
            writeln!(f, "    {:<12} {}", "key", keys.join(", "))?;
            writeln!(f, "    {:<12} {backend}", "backend")?;
            for (setting, value) in settings {
                writeln!(f, "    {setting:<12} {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(feature = "json")]
impl Explained {
    /// The same as JSON: a list of objects with `name`, `keys`, `backend`, `place` and `settings`.
    #[must_use]
    pub fn to_json(&self) -> String {
        // There are only texts and lists, which JSON can always express.
        serde_json::to_string_pretty(&self.0).unwrap_or_default()
    }
}

#[cfg(feature = "json")]
fn as_map<S: serde::Serializer>(settings: &[(&'static str, String)], out: S) -> std::result::Result<S::Ok, S::Error> {
    out.collect_map(settings.iter().map(|(name, value)| (name, value)))
}

const fn otherwise(policy: Otherwise) -> &'static str {
    match policy {
        Otherwise::Error => "error",
        Otherwise::Skip => "skip",
        Otherwise::Call => "call",
    }
}

#[cfg(test)]
mod tests;
