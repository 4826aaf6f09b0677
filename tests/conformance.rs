//! Each store runs the conformance suite in its own crate. This test fails for a store of the facade without such a run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_opener_of_the_facade_has_a_conformance_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let openers = read(&root.join("src/openers.rs"));
    let openers = openers.lines().filter_map(|line| line.trim().strip_prefix("dlock_")?.strip_suffix("::OPENER,"));
    let openers: BTreeSet<_> = openers.map(str::to_owned).collect();
    let folders = fs::read_dir(root.join("backends")).unwrap();
    // What the SQL stores share is no store.
    let stores = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).filter(|name| name != "sql");
    let stores: BTreeSet<_> = stores.collect();
    // A pair is made of installed stores, so it has no opener.
    let opened: BTreeSet<_> = stores.iter().filter(|name| *name != "paired").cloned().collect();
    assert_eq!(openers, opened, "the openers of src/openers.rs and the crates in backends/ differ");
    for store in stores {
        let folder = root.join("backends").join(&store);
        let run = read(&folder.join("tests/conformance.rs"));
        assert!(run.contains("conformance::main"), "backends/{store}/tests/conformance.rs does not run the suite");
        // With the standard harness the target would have no test, and pass.
        let target = "[[test]]\nname = \"conformance\"\nharness = false\n";
        assert!(read(&folder.join("Cargo.toml")).contains(target), "backends/{store}/Cargo.toml lacks:\n{target}");
    }
}
