//! The store of a command: from the command line, from a file, or from the variables of the services.

use dlock::Registry;

use crate::cli::StoreArgs;
use crate::exit::{Exit, Failure};

/// The name of the store whose URL was given.
const NAME: &str = "store";

/// An opened store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) registry: Registry,
    /// The name under which it is installed.
    pub(crate) backend: String,
    pub(crate) namespace: String,
}

impl Store {
    /// Opens a store that is there already. A mistake in the path of a file must not make a new store, in which all is well.
    pub(crate) async fn open(args: &StoreArgs) -> Result<Self, Failure> {
        Self::open_by(Registry::new(), args, without_creation).await
    }

    /// Opens a store in this registry, to lock.
    pub(crate) async fn open_in(registry: Registry, args: &StoreArgs) -> Result<Self, Failure> {
        Self::open_by(registry, args, |url| url).await
    }

    async fn open_by(registry: Registry, args: &StoreArgs, change: fn(String) -> String) -> Result<Self, Failure> {
        let backend = match url(args)? {
            Some(url) => {
                registry.connect(NAME, &change(url)).await?;
                NAME.to_owned()
            }
            None => {
                let names = registry.connect_from_env().await?;
                match (&args.backend, &names[..]) {
                    (Some(name), names) if names.contains(name) => name.clone(),
                    (Some(name), names) => {
                        let known = names.join(", ");
                        return Err(Failure::usage(format!(
                            "no DLOCK_URL_<NAME> names the store {name:?}; these exist: {known}"
                        )));
                    }
                    (None, [only]) => only.clone(),
                    (None, []) => {
                        return Err(Failure::usage(
                            "which store? Set DLOCK_URL, or write --url, such as --url redis://127.0.0.1/",
                        ));
                    }
                    (None, names) => {
                        let default = std::env::var("DLOCK_DEFAULT").ok().filter(|name| names.contains(name));
                        default.ok_or_else(|| {
                            Failure::usage(format!("which store? Write --backend with one of {}", names.join(", ")))
                        })?
                    }
                }
            }
        };
        if let Some(namespace) = &args.namespace {
            registry.configure(|defaults| defaults.namespace.clone_from(namespace))?;
        }
        let namespace = registry.defaults().namespace.clone();
        Ok(Self { registry, backend, namespace })
    }

    /// The key in this store as people read it: without the first part that all keys of the namespace have.
    pub(crate) fn shown<'a>(&self, key: &'a str) -> &'a str {
        let rest = key.strip_prefix("dl1:").and_then(|rest| rest.strip_prefix(&self.namespace));
        rest.and_then(|rest| rest.strip_prefix(':')).unwrap_or(key)
    }
}

/// The URL of a file of SQLite, so that a file that is missing is an error.
fn without_creation(url: String) -> String {
    let is_file = url.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite:"));
    let has_mode = |(_, options): (_, &str)| options.split('&').any(|option| option.starts_with("mode="));
    if !is_file || url.split_once('?').is_some_and(has_mode) {
        return url;
    }
    format!("{url}{}mode=rw", if url.contains('?') { '&' } else { '?' })
}

fn url(args: &StoreArgs) -> Result<Option<String>, Failure> {
    if let Some(url) = &args.url {
        if has_secret(url) {
            return Err(Failure::usage(
                "a URL with a password on the command line can be read by everybody on this host: set DLOCK_URL, or write --url-file FILE",
            ));
        }
        return Ok(Some(url.clone()));
    }
    if let Some(file) = &args.url_file {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("--url-file {}: {error}", file.display())))?;
        let line = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
        return line
            .map(|line| Some(line.to_owned()))
            .ok_or_else(|| Failure::usage(format!("--url-file {}: its first line is empty", file.display())));
    }
    if args.backend.is_some() {
        return Ok(None);
    }
    match std::env::var("DLOCK_URL") {
        Ok(url) => Ok(Some(url)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::new(Exit::USAGE, "DLOCK_URL is not valid UTF-8")),
    }
}

/// Whether the URL has a password or a token in its text.
fn has_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
    let has_password = body.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        name != "token_file" && ["pass", "token", "secret", "pwd"].iter().any(|word| name.contains(word))
    };
    has_password || query.split('&').filter_map(|pair| pair.split_once('=')).any(|(name, _)| is_secret(name))
}

#[cfg(test)]
mod tests {
    use super::{has_secret, without_creation};

    #[test]
    fn a_file_that_is_missing_is_an_error_unless_the_url_says_otherwise() {
        let changed = |url: &str| without_creation(url.to_owned());
        assert_eq!(changed("sqlite:locks.db"), "sqlite:locks.db?mode=rw");
        assert_eq!(changed("SQLite:///mode=x/a?shared=allow"), "SQLite:///mode=x/a?shared=allow&mode=rw");
        for as_it_is in ["sqlite:a?mode=rwc", "sqlite:a?shared=allow&mode=rw", "redis://h/", "memory://"] {
            assert_eq!(changed(as_it_is), as_it_is);
        }
    }

    #[test]
    fn a_secret_in_a_url_is_seen() {
        for url in [
            "redis://:hunter2@h/",
            "mysql://me:hunter2@h/db",
            "consul://h/?token=hunter2",
            "zk://h/?sasl_password=hunter2",
        ] {
            assert!(has_secret(url), "{url}");
        }
        for url in [
            "redis://h:6379/0",
            "postgres://me@h:5432/db",
            "sqlite://a@b.db",
            "etcd://a:1,b:2/x?tls=1",
            "consul://h?token_file=/run/t",
        ] {
            assert!(!has_secret(url), "{url}");
        }
    }
}
