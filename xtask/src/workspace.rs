//! The crates of this workspace and their features, as the manifests say. The tasks derive their lists from them, so that a new
//! store is not entered in each task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::sh::{Result, cargo, read};

/// The one backend that a plain `cargo test` leaves out: its client needs `protoc`, which is there after `servers`.
pub(crate) const ETCD: &str = "dlock-rs/etcd-tls";

/// Set for the tests by `--all`: `dlock_testkit` reads it.
pub(crate) const ALL: &str = "DLOCK_TEST_ALL";

/// A module of this name has tests that run with `--all` alone.
pub(crate) const THOROUGH: &str = "thorough::";

/// The package of the facade.
pub(crate) const FACADE: &str = "dlock-rs";

/// The folder of the stores' crates.
pub(crate) const BACKENDS: &str = "backends/";

/// The features of the facade that stand for several others.
const COLLECTIONS: [&str; 2] = ["default", "full"];

pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
}

#[derive(Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// As in `backends/redis`. That of the facade is empty.
    pub(crate) folder: String,
    pub(crate) is_published: bool,
    pub(crate) features: BTreeMap<String, BTreeSet<String>>,
    /// The packages that it uses outside of its tests.
    pub(crate) dependencies: BTreeSet<String>,
    /// The features of the facade that its tests switch on.
    pub(crate) tested: BTreeSet<String>,
}

impl Workspace {
    /// The workspace at this root.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
        let metadata: Value = serde_json::from_str(&read(cargo(&arguments).current_dir(root))?)?;
        let root = text(&metadata["workspace_root"]);
        let packages = list(&metadata["packages"]).iter().map(|package| Package::of(package, root));
        Ok(Self { packages: packages.collect() })
    }

    /// The features of the facade, but for `default` and `full`.
    pub(crate) fn features(&self) -> impl Iterator<Item = &str> {
        let features = self.facade().into_iter().flat_map(|facade| facade.features.keys());
        features.map(String::as_str).filter(|feature| !COLLECTIONS.contains(feature))
    }

    pub(crate) fn facade(&self) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == FACADE)
    }

    /// The crates in `backends/`, each with the name of its folder.
    pub(crate) fn backends(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.packages.iter().filter_map(|package| Some((package.folder.strip_prefix(BACKENDS)?, package)))
    }

    /// The crates that the facade has a feature for, as their folders are called.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &str> {
        self.backends().map(|(store, _)| store).filter(|store| self.is_store(store))
    }

    pub(crate) fn is_store(&self, name: &str) -> bool {
        let feature = self.facade().and_then(|facade| facade.features.get(name));
        feature.is_some_and(|switched| switched.contains(&format!("dep:dlock-{name}")))
    }

    /// The crates that several stores share, such as that of the SQL servers.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Package> {
        let used = |name: &str| self.backends().any(|(_, other)| other.dependencies.contains(name));
        let shared = self.backends().filter(move |(folder, package)| !self.is_store(folder) && used(&package.name));
        shared.map(|(_, package)| package)
    }
}

impl Package {
    fn of(package: &Value, root: &str) -> Self {
        let folder =
            Path::new(text(&package["manifest_path"])).parent().and_then(|folder| folder.strip_prefix(root).ok());
        let dependencies = list(&package["dependencies"]);
        // A dependency of tests is of the kind `dev`; one of the package is of none.
        let of_kind =
            |is_for_tests: bool| dependencies.iter().filter(move |one| (one["kind"] == "dev") == is_for_tests);
        let names = |value: &Value| list(value).iter().map(|name| text(name).to_owned()).collect::<BTreeSet<_>>();
        let facade = of_kind(true).filter(|dependency| dependency["name"] == FACADE);
        let features = package["features"].as_object().into_iter().flatten();
        Self {
            name: text(&package["name"]).to_owned(),
            folder: folder.map(|folder| folder.display().to_string()).unwrap_or_default(),
            // `publish = false` is an empty list of registries.
            is_published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
            features: features.map(|(feature, switched)| (feature.clone(), names(switched))).collect(),
            dependencies: of_kind(false).map(|dependency| text(&dependency["name"]).to_owned()).collect(),
            tested: facade.flat_map(|dependency| names(&dependency["features"])).collect(),
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Workspace;

    #[test]
    fn the_stores_are_the_crates_that_a_feature_of_the_facade_opens() {
        let workspace = Workspace::of(crate::sh::root()).unwrap();
        let stores: Vec<_> = workspace.stores().collect();
        assert!(stores.len() >= 10 && stores.contains(&"redis") && stores.contains(&"paired"), "{stores:?}");
        assert!(!stores.contains(&"sql"), "{stores:?}");
        let shared: Vec<_> = workspace.shared().map(|package| &*package.name).collect();
        assert_eq!(shared, ["dlock-sql"]);
        let features: Vec<_> = workspace.features().collect();
        assert!(features.contains(&"redis-tls") && !features.contains(&"full"), "{features:?}");
        let unpublished = workspace.packages.iter().filter(|package| !package.is_published);
        assert_eq!(
            unpublished.map(|package| &*package.name).collect::<Vec<_>>(),
            ["dlock-testkit", "dlock-sim", "xtask"]
        );
    }
}
