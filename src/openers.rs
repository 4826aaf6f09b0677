//! The table of the stores: the only place where a store is chosen by feature.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Error, Result};
use dlock_runtime::__private::{UrlTable, inventory};
use dlock_runtime::Registry;
use dlock_store::{Address, Clock, Opener, UrlForm};
use futures::future::BoxFuture;

/// Writes from one row for each store what the facade has of it: its opener, its schemes, and its modules. The schemes are
/// here too, since an error names the feature of a store that this build does not have.
macro_rules! stores {
    (
        opened by a url {
            $($name:ident = $krate:ident $(+ $fenced:ident)?: $feature:literal $schemes:tt $(, $more:literal $also:tt)*;)+
        }
        made of installed stores {
            $($pair:ident = $pair_krate:ident: $pair_feature:literal $pair_schemes:tt;)+
        }
    ) => {
        /// The stores of this build.
        const OPENERS: &[Opener] = &[$(#[cfg(feature = $feature)] $krate::OPENER,)+];

        const MADE_OF_OTHERS: &[MadeOfOthers] = &[$(
            #[cfg(feature = $pair_feature)]
            MadeOfOthers { forms: &$pair_krate::FORMS, members: $pair_krate::members, make: $pair_krate::open },
        )+];

        /// Every scheme that some build knows, with the feature that it needs.
        const SCHEMES: &[(&[&str], &str)] =
            &[$((&$schemes, $feature), $((&$also, $more),)*)+ $((&$pair_schemes, $pair_feature),)+];

        /// The stores that some build opens by a URL.
        #[cfg(test)]
        const OPENED: &[&str] = &[$(stringify!($name)),+];

        /// The stores, to be installed with [`install`](crate::install); [`connect`](crate::connect) and
        /// [`connect_lazy`](crate::connect_lazy) open them by URL.
        pub mod backends {
            $(#[cfg(feature = $feature)] pub use $krate as $name;)+
            $(#[cfg(feature = $pair_feature)] pub use $pair_krate as $pair;)+
        }

        /// Writes that carry a fencing token and are refused once a higher one was seen.
        ///
        /// The modules keep the tokens in a table or under a name of dlock's; that of etcd compares the hold itself.
        /// [`line`](fenced::line) keeps the token in a column of your own table, by any client.
        pub mod fenced {
            $($(#[cfg(feature = $feature)] pub use $krate::$fenced as $name;)?)+

            pub use crate::fence_line::{Line, line};
        }
    };
}

// A row: the store's module, its crate, `+ fenced` if the crate has such a module; then each feature with its schemes.
stores! {
    opened by a url {
        memory = dlock_memory: "memory" ["memory"];
        sqlite = dlock_sqlite + fenced: "sqlite" ["sqlite"];
        redis = dlock_redis + fenced:
            "redis" ["redis", "redis-sentinel", "redis-cluster", "redis+unix", "unix"],
            "redis-tls" ["rediss", "rediss-sentinel", "rediss-cluster"];
        redlock = dlock_redlock: "redlock" ["redlock"];
        mysql = dlock_mysql + fenced: "mysql" ["mysql", "mariadb"];
        postgres = dlock_postgres + fenced: "postgres" ["postgres", "postgresql"];
        etcd = dlock_etcd + fenced: "etcd" ["etcd"];
        zookeeper = dlock_zookeeper + fenced: "zookeeper" ["zk"];
        consul = dlock_consul + fenced: "consul" ["consul"];
    }
    made of installed stores {
        paired = dlock_paired: "paired" ["paired", "migrating"];
    }
}

inventory::submit! {
    UrlTable { open: |url, registry| Box::pin(open(url, registry)), check, members }
}

/// Stores that are made of others, which are installed already.
struct MadeOfOthers {
    forms: &'static [&'static UrlForm],
    /// The names of the others.
    members: for<'a> fn(&'a Address) -> Result<[&'a str; 2]>,
    make: Make,
}

/// Makes it of the others, in the order of their names.
type Make = for<'a> fn(&'a Address, &'a Clock, [Arc<dyn Backend>; 2]) -> BoxFuture<'a, Result<Arc<dyn Backend>>>;

/// A store has its own limits for the steps that usually take long. A server may fall silent at any other step, and the callers of
/// a lazy store would all wait for that one opening.
const OPENING_LIMIT: Duration = Duration::from_secs(30);

/// Opens the store behind a URL. The URL may hold a password: it is never echoed, not even where it is malformed.
async fn open(url: &str, registry: &Registry) -> Result<Arc<dyn Backend>> {
    let clock = registry.clock();
    match find(url)? {
        Way::Made(made, address) => {
            let [first, second] = (made.members)(&address)?;
            let stores = [registry.backend(Some(first)).await?, registry.backend(Some(second)).await?];
            within_limit(clock, (made.make)(&address, clock, stores)).await
        }
        Way::Opened(opener, address) => {
            let place = address.place();
            let opened = within_limit(clock, (opener.open)(address, clock)).await;
            opened.map_err(|error| match place {
                Some(place) => error.at(&place),
                None => error,
            })
        }
    }
}

async fn within_limit<T>(clock: &Clock, opening: impl Future<Output = Result<T>>) -> Result<T> {
    let opened = clock.timeout_at(clock.now().after(OPENING_LIMIT), opening).await;
    opened.unwrap_or_else(|| {
        Err(Error::outage(format!(
            "the store was not open within {OPENING_LIMIT:?}: a server answered at first and then fell silent"
        )))
    })
}

/// Checks a URL as far as it can be checked without its store.
fn check(url: &str) -> Result<()> {
    match find(url)? {
        Way::Made(made, address) => (made.members)(&address).map(drop),
        Way::Opened(opener, address) => (opener.check)(&address.by_text()),
    }
}

/// How a URL's store is made.
enum Way {
    Made(&'static MadeOfOthers, Address),
    Opened(&'static Opener, Address),
}

fn find(url: &str) -> Result<Way> {
    let scheme = scheme(url);
    if let Some((made, form)) = made_of_others(&scheme) {
        return Ok(Way::Made(made, Address::parse(url, form)?));
    }
    match OPENERS.iter().find(|opener| opener.form.schemes.contains(&&*scheme)) {
        Some(opener) => Ok(Way::Opened(opener, Address::parse(url, opener.form)?)),
        None => Err(unknown(&scheme)),
    }
}

/// The names of the installed stores that the store behind a URL is made of. Opening a URL that is malformed says why.
fn members(url: &str) -> Vec<String> {
    let Some((made, form)) = made_of_others(&scheme(url)) else { return Vec::new() };
    let address = Address::parse(url, form);
    let members = address.as_ref().map_or_else(|_| Ok(Vec::new()), |address| (made.members)(address).map(Vec::from));
    members.unwrap_or_default().into_iter().map(str::to_owned).collect()
}

fn scheme(url: &str) -> String {
    let file = || url.split_once(':').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("sqlite"));
    url.split_once("://").or_else(file).map_or("", |(scheme, _)| scheme).to_ascii_lowercase()
}

fn made_of_others(scheme: &str) -> Option<(&'static MadeOfOthers, &'static UrlForm)> {
    let forms = MADE_OF_OTHERS.iter().flat_map(|made| made.forms.iter().map(move |form| (made, *form)));
    forms.into_iter().find(|(_, form)| form.schemes.contains(&scheme))
}

fn unknown(scheme: &str) -> Error {
    match SCHEMES.iter().find(|(known, _)| known.contains(&scheme)) {
        Some((_, feature)) => Error::config(
            "url",
            format!(
                "URLs that begin with `{scheme}://` need the feature `{feature}` of dlock-rs: dlock-rs = {{ features = [\"{feature}\"] }}"
            ),
        ),
        // The scheme itself is not echoed: a URL that lost its scheme may begin with a password.
        None => {
            let known = SCHEMES.iter().flat_map(|(known, _)| *known).map(|scheme| format!("{scheme}://"));
            let mut known: Vec<_> = known.collect();
            let last = known.pop().unwrap_or_default();
            Error::config("url", format!("a backend's URL begins with {} or {last}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The names in the first column of the tables that begin with `| parameter |`.
    fn in_tables(page: &str) -> BTreeSet<&str> {
        let tables = page.split("\n| parameter |").skip(1).map(|table| table.split("\n\n").next().unwrap_or_default());
        let cells = tables.flat_map(|table| table.lines().skip(2)).filter_map(|line| line.split(" | ").next());
        let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        // `auto`, `off` and `30s` stand beside the name as further values.
        quoted
            .filter(|text| text.contains('=') || text.contains('_'))
            .filter_map(|text| text.split('=').next())
            .collect()
    }

    #[test]
    fn an_opening_that_hangs_ends_after_thirty_seconds() {
        let clock = Clock::manual();
        let mut opening = Box::pin(within_limit(&clock, std::future::pending::<Result<()>>()));
        let mut context = Context::from_waker(Waker::noop());
        let mut opened = |clock: &Clock, later| {
            clock.advance(later);
            opening.as_mut().poll(&mut context)
        };
        assert!(opened(&clock, Duration::ZERO).is_pending());
        assert!(opened(&clock, Duration::from_secs(29)).is_pending());
        let Poll::Ready(Err(error)) = opened(&clock, Duration::from_secs(2)) else { panic!("it hangs") };
        assert_eq!(*error.kind(), dlock_contract::ErrorKind::Outage);
        assert!(error.to_string().contains("not open within 30s") && error.is_retryable(), "{error}");
    }

    fn all_forms() -> impl Iterator<Item = &'static UrlForm> {
        let of_pairs = MADE_OF_OTHERS.iter().flat_map(|made| made.forms).copied();
        OPENERS.iter().map(|opener| opener.form).chain(of_pairs)
    }

    #[test]
    fn the_pages_name_every_option_of_a_url_and_no_other() {
        let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("backends");
        let files = fs::read_dir(stores).unwrap().flat_map(|store| fs::read_dir(store.unwrap().path()).unwrap());
        let pages =
            files.map(|file| file.unwrap().path()).filter(|file| file.extension().is_some_and(|end| end == "md"));
        let pages: String = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
        let rows: BTreeSet<_> = all_forms().flat_map(|form| form.options).map(|row| row.name).collect();
        for name in &rows {
            let named = [format!("`{name}`"), format!("`{name}="), format!("?{name}="), format!("&{name}=")];
            let is_named = named.iter().any(|text| pages.contains(text));
            assert!(is_named, "no page of a store, backends/*/*.md, names the option `{name}`");
        }
        // A build without a store does not know its options.
        if OPENERS.len() == OPENED.len() && !MADE_OF_OTHERS.is_empty() {
            let tables = in_tables(&pages);
            assert!(tables.len() > 10, "the tables of backends/*/*.md are not found: {tables:?}");
            let unknown: Vec<_> = tables.difference(&rows).collect();
            assert!(unknown.is_empty(), "backends/*/*.md has options that no store takes: {unknown:?}");
        }
    }

    #[test]
    fn the_table_names_each_scheme_of_a_store_once() {
        let named: Vec<_> = SCHEMES.iter().flat_map(|(schemes, _)| *schemes).collect();
        assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len(), "a scheme is named twice: {named:?}");
        for scheme in all_forms().flat_map(|form| form.schemes) {
            assert!(named.contains(&scheme), "the row of src/openers.rs does not name the scheme `{scheme}`");
        }
    }
}
