//! A new store is entered in few places. This rule names each of them that was forgotten.
//!
//! The other lists of stores are derived from the manifests, by [`Workspace`].

use dlock_testkit::servers::PINS;

use crate::workspace::Workspace;

/// Its tests start no server.
const NO_SERVER: [&str; 1] = ["memory"];

/// It works inside of the program: no server could be down, and no account has a password.
const IN_PROCESS: [&str; 2] = ["memory", "sqlite"];

/// A plain `cargo test` leaves it out: its client needs `protoc`.
const NEEDS_PROTOC: [&str; 1] = ["etcd"];

/// The table of the stores, in the facade.
const TABLE: &str = "src/openers.rs";

/// The table of the servers that the tests need.
const PIN_TABLE: &str = "testkit/src/servers/pins.rs";

/// It has the table of what each store promises.
const PROMISES_PAGE: &str = "docs/promises.md";

/// The test that writes the tables of what each store promises.
const PROMISES: &str = "tests/promises.rs";

/// The test with the stores that processes share, with its list of them.
const PROCESS: &str = "tests/process/store.rs";

/// The test in which no password is shown, with the URLs and with the servers in use.
const SECRETS: &str = "tests/secrets.rs";

/// The test of stores that are down at the start of a program.
const LAZY: &str = "tests/lazy.rs";

/// With the standard harness the target would have no test, and pass.
const SUITE: &str = "[[test]]\nname = \"conformance\"\nharness = false\n";

/// The places that were forgotten. `read` gives the text of a file, or an empty one.
pub(super) fn forgotten(workspace: &Workspace, read: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut found = Vec::new();
    let mut unless = |is_there: bool, place: &str, what: String| {
        if !is_there {
            found.push(format!("  {place}: {what}"));
        }
    };
    let (table, promises_page, promises) = (read(TABLE), read(PROMISES_PAGE), read(PROMISES));
    let (process, secrets, lazy) = (read(PROCESS), read(SECRETS), read(LAZY));
    let facade = workspace.facade();
    let has = |of: &str, feature: &str| {
        facade.is_some_and(|facade| facade.features.get(of).is_some_and(|all| all.contains(feature)))
    };
    for feature in workspace.features() {
        unless(has("full", feature), "Cargo.toml", format!("the feature `full` does not switch `{feature}` on"));
    }
    for (folder, package) in workspace.backends() {
        let shared = workspace.shared().any(|shared| shared.name == package.name);
        let what = format!("no feature opens the store of backends/{folder}: `{folder} = [\"dep:{}\"]`", package.name);
        unless(shared || workspace.is_store(folder), "Cargo.toml", what);
    }
    for store in workspace.stores() {
        let is_tested = facade.is_some_and(|facade| facade.tested.contains(store)) || NEEDS_PROTOC.contains(&store);
        unless(is_tested, "Cargo.toml", format!("the dev-dependency dlock-rs does not switch `{store}` on"));
        let module = |name: &str| table.contains(&format!(" {store} = dlock_{store}{name}"));
        unless(module(":") || module(" + fenced:"), TABLE, format!("the store `{store}` has no row"));
        let is_fenced = read(&format!("backends/{store}/src/lib.rs")).contains("pub mod fenced;");
        let what =
            format!("backends/{store} has a module `fenced`: its row begins with `{store} = dlock_{store} + fenced:`");
        unless(!is_fenced || module(" + fenced:"), TABLE, what);
        let manifest = format!("backends/{store}/Cargo.toml");
        unless(read(&manifest).contains(SUITE), &manifest, format!("this is missing:\n{SUITE}"));
        let suite = format!("backends/{store}/tests/conformance.rs");
        unless(read(&suite).contains("conformance::main"), &suite, "it does not run the conformance suite".to_owned());
        let is_pinned = PINS.iter().any(|pin| pin.is_for(store)) || NO_SERVER.contains(&store);
        unless(is_pinned, PIN_TABLE, format!("no line names the store `{store}`"));
        unless(is_tried(&process, store), PROCESS, format!("the list `ALL` has no store with the name `{store}`"));
        let schemes = schemes_of(&table, store);
        // A store without a row is named above.
        if !schemes.is_empty() && !is_made_of_others(&table, store) {
            let is_hidden = schemes.iter().any(|scheme| secrets.contains(&format!("\n    \"{scheme}://")));
            unless(is_hidden, SECRETS, format!("the list `URLS` has no URL of the store `{store}`"));
            if !IN_PROCESS.contains(&store) {
                let is_used = schemes.iter().any(|scheme| secrets.contains(&format!("format!(\"{scheme}://")));
                unless(is_used, SECRETS, format!("no server of the store `{store}` is used with a password"));
                let is_late = lazy.contains(&format!("servers.{store}()"));
                unless(is_late, LAZY, format!("no server of the store `{store}` comes up after the program"));
            }
        }
        let is_listed = promises.contains(&format!("(\"{store}\", ")) || is_made_of_others(&table, store);
        unless(is_listed, PROMISES, format!("the table of what each store promises has no line for `{store}`"));
        let features = promises_page.lines().find(|line| line.starts_with("| feature |")).unwrap_or_default();
        let has_column = features.contains(&format!("`{store}`")) || is_made_of_others(&table, store);
        unless(has_column, PROMISES_PAGE, format!("the table of promises has no column for `{store}`"));
        let page = format!("backends/{store}/README.md");
        unless(!read(&page).is_empty(), &page, format!("no page describes the store `{store}`"));
    }
    found
}

/// Whether the store is in the list of `tests/process`: a variant has its name, and the list has the variant.
fn is_tried(process: &str, store: &str) -> bool {
    let named = process.split_once(&format!(" => \"{store}\","));
    let variant = named.and_then(|(before, _)| before.rsplit_once("Self::")).map(|(_, variant)| variant);
    let list = process.split_once("const ALL: ").and_then(|(_, rest)| rest.split_once("];"));
    variant.zip(list).is_some_and(|(variant, (list, _))| list.contains(&format!(" Store::{variant},")))
}

/// The schemes of the store's URLs, by its row in the facade's table.
fn schemes_of<'a>(table: &'a str, store: &str) -> Vec<&'a str> {
    let row = table.split_once(&format!(" {store} = dlock_{store}")).and_then(|(_, rest)| rest.split_once(';'));
    let lists = row.into_iter().flat_map(|(row, _)| row.split('[').skip(1)).filter_map(|list| list.split_once(']'));
    lists.flat_map(|(list, _)| list.split(',')).map(|scheme| scheme.trim().trim_matches('"')).collect()
}

/// Such a store promises what its members do. The parts of its URLs are names, and what may be down are its members.
fn is_made_of_others(table: &str, store: &str) -> bool {
    table.split_once("made of installed stores {\n").is_some_and(|(_, rows)| rows.contains(&format!(" {store} = ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{SUITE, forgotten, schemes_of};
    use crate::workspace::{FACADE, Package, Workspace};

    const PROCESS_LIST: &str = "const ALL: [Store; 1] = [\n    Store::Consul,\n];\n    Self::Consul => \"consul\",\n";

    /// A store that is entered everywhere. It has the name of one whose servers are pinned.
    fn whole() -> (Workspace, BTreeMap<String, String>) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let facade = Package {
            name: FACADE.to_owned(),
            features: [("consul", "dep:dlock-consul"), ("full", "consul")]
                .map(|(feature, switched)| (feature.to_owned(), names(&[switched])))
                .into(),
            tested: names(&["consul"]),
            ..Package::default()
        };
        let store = Package { name: "dlock-consul".into(), folder: "backends/consul".into(), ..Package::default() };
        let files = [
            ("src/openers.rs", "stores! {\n    consul = dlock_consul + fenced: \"consul\" [\"consul\"];"),
            ("backends/consul/src/lib.rs", "pub mod fenced;"),
            ("backends/consul/Cargo.toml", SUITE),
            ("backends/consul/tests/conformance.rs", "dlock_testkit::conformance::main(stores)"),
            ("tests/promises.rs", "(\"consul\", \"Consul\", |_| shared().consul()),"),
            ("tests/process/store.rs", PROCESS_LIST),
            (
                "tests/secrets.rs",
                "URLS = &[\n    \"consul://{}@host\",\n];\n in_use(|token| format!(\"consul://:{token}@host\"))",
            ),
            ("tests/lazy.rs", "servers.consul().unwrap(),"),
            ("docs/promises.md", "| feature | `consul`, with TLS `consul-tls` |"),
            ("backends/consul/README.md", "# Consul\n"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        (Workspace { packages: vec![facade, store] }, files.into())
    }

    fn places(workspace: &Workspace, files: &BTreeMap<String, String>) -> Vec<String> {
        let found = forgotten(workspace, &|path| files.get(path).cloned().unwrap_or_default());
        found.iter().map(|line| line.trim_start().split(':').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_store_that_is_entered_everywhere_has_no_finding() {
        let (workspace, files) = whole();
        assert_eq!(places(&workspace, &files), Vec::<String>::new());
    }

    #[test]
    fn each_file_in_which_a_store_is_forgotten_is_named() {
        let (workspace, files) = whole();
        for path in files.keys().filter(|path| !path.ends_with("lib.rs")) {
            let mut files = files.clone();
            files.remove(path);
            let found = places(&workspace, &files);
            assert!(!found.is_empty() && found.iter().all(|place| place == path), "{path}: {found:?}");
        }
        let mut files = files.clone();
        files.insert("src/openers.rs".into(), "stores! {\n    consul = dlock_consul: \"consul\" [\"consul\"];".into());
        assert_eq!(places(&workspace, &files), ["src/openers.rs"], "a row without the module `fenced`");
    }

    #[test]
    fn a_store_that_a_test_with_all_stores_does_not_try_is_named() {
        let (workspace, files) = whole();
        for (path, there, missing) in [
            ("tests/process/store.rs", "    Store::Consul,\n", "the list `ALL`"),
            ("tests/process/store.rs", "    Self::Consul => \"consul\",\n", "the list `ALL`"),
            ("tests/secrets.rs", "    \"consul://{}@host\",\n", "the list `URLS`"),
            ("tests/secrets.rs", "format!(\"consul://:{token}@host\")", "with a password"),
            ("tests/lazy.rs", "servers.consul().unwrap(),", "after the program"),
        ] {
            let mut files = files.clone();
            let text = files[path].replace(there, "");
            assert_ne!(text, files[path], "{path} has no {there}");
            files.insert(path.into(), text);
            let found = forgotten(&workspace, &|path| files.get(path).cloned().unwrap_or_default());
            assert!(found.len() == 1 && found[0].contains(path) && found[0].contains(missing), "{there}: {found:?}");
        }
    }

    /// Its URLs have only names, and its members have a server.
    #[test]
    fn a_store_that_is_made_of_others_needs_no_password_and_no_server() {
        let (workspace, mut files) = whole();
        files.insert(
            "src/openers.rs".into(),
            "made of installed stores {\n    consul = dlock_consul + fenced: \"consul\" [\"consul\"];".into(),
        );
        for path in ["tests/secrets.rs", "tests/lazy.rs"] {
            files.remove(path);
        }
        assert_eq!(places(&workspace, &files), Vec::<String>::new());
        files.remove("tests/process/store.rs");
        assert_eq!(places(&workspace, &files), ["tests/process/store.rs"]);
    }

    #[test]
    fn a_store_has_all_schemes_of_its_row() {
        let table = "stores! {\n    redis = dlock_redis + fenced:\n  \"redis\" [\"redis\", \"unix\"],\n  \"redis-tls\" [\"rediss\"];\n    \
                     redlock = dlock_redlock: \"redlock\" [\"redlock\"];";
        assert_eq!(schemes_of(table, "redis"), ["redis", "unix", "rediss"]);
        assert_eq!(schemes_of(table, "redlock"), ["redlock"]);
        assert!(schemes_of(table, "etcd").is_empty());
    }

    #[test]
    fn each_line_of_the_manifest_in_which_a_store_is_forgotten_is_named() {
        let (mut workspace, files) = whole();
        workspace.packages[0].tested.clear();
        assert_eq!(places(&workspace, &files), ["Cargo.toml"], "the features of the tests");
        let (mut workspace, files) = whole();
        workspace.packages[0].features.insert("full".into(), ["memory".to_owned()].into());
        assert_eq!(places(&workspace, &files), ["Cargo.toml"], "the feature `full`");
        let (mut workspace, files) = whole();
        workspace.packages[0].features.clear();
        assert_eq!(places(&workspace, &files), ["Cargo.toml"], "the feature of the store");
    }

    #[test]
    fn a_store_without_pins_is_named() {
        let (mut workspace, files) = whole();
        let renamed = |text: &str| text.replace("consul", "newcomer");
        let files: BTreeMap<_, _> = files.iter().map(|(path, text)| (renamed(path), renamed(text))).collect();
        let files: BTreeMap<_, _> =
            files.into_iter().map(|(path, text)| (path, text.replace("## Consul", "## Newcomer"))).collect();
        let facade = &mut workspace.packages[0];
        facade.features.clear();
        facade.features.insert("newcomer".into(), ["dep:dlock-newcomer".to_owned()].into());
        facade.features.insert("full".into(), ["newcomer".to_owned()].into());
        facade.tested = ["newcomer".to_owned()].into();
        let store = &mut workspace.packages[1];
        (store.name, store.folder) = ("dlock-newcomer".into(), "backends/newcomer".into());
        assert_eq!(places(&workspace, &files), ["testkit/src/servers/pins.rs"]);
    }
}
