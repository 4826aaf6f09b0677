//! The packages as they would be published, and a small crate that is built and run against them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh::{Result, cargo, run};
use crate::workspace::Workspace;

/// The program of a new user.
const MAIN: &str = r#"
#[dlock::distributed_lock(key = "stock:<id>", ttl = "30s", backend = "main")]
async fn deduct(id: u64) -> Result<u64, dlock::Error> {
    Ok(dlock::current().expect("called under a lock").fence()?.get() + id)
}

#[tokio::main]
async fn main() -> Result<(), dlock::Error> {
    dlock::connect("main", "memory://").await?;
    assert!(deduct(42).await? > 42);
    // The workspace's tests switch all features on, so the errors that name a missing one are seen here.
    for (url, feature) in [("redis://127.0.0.1:1/?layout=redisson", "redisson"), ("rediss://127.0.0.1:1", "redis-tls")] {
        let error = dlock::connect("refused", url).await.expect_err(url);
        assert!(error.to_string().contains(&format!("feature `{feature}`")), "{error}");
    }
    Ok(())
}
"#;

/// Packs the whole workspace, unpacks it, and runs the program against that.
pub(crate) fn packaged() -> Result {
    let target = crate::sh::root().join("target");
    let packages = target.join("package");
    // Packages of earlier versions would be taken for those of today.
    if packages.exists() {
        fs::remove_dir_all(&packages)?;
    }
    let mut pack = cargo(&["package", "--quiet", "--workspace", "--no-verify", "--allow-dirty"]);
    let workspace = Workspace::of(crate::sh::root())?;
    for package in workspace.packages.iter().filter(|package| !package.is_published) {
        pack.args(["--exclude", &package.name]);
    }
    run(&mut pack)?;
    let user = target.join("packaged");
    let sources = user.join("packages");
    if sources.exists() {
        fs::remove_dir_all(&sources)?;
    }
    fs::create_dir_all(user.join("src"))?;
    fs::create_dir_all(&sources)?;
    let mut patches = String::new();
    for archive in archives(&packages)? {
        // `-m`: all files in a package have one fixed time, and cargo would take those of the run before for unchanged.
        run(Command::new("tar").arg("-xmzf").arg(&archive).arg("-C").arg(&sources))?;
        let stem = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
        patches += &format!("{name} = {{ path = {:?} }}\n", sources.join(&stem));
    }
    fs::write(user.join("Cargo.toml"), manifest(&patches))?;
    fs::write(user.join("src/main.rs"), MAIN)?;
    // The versions that we test with.
    fs::copy(crate::sh::root().join("Cargo.lock"), user.join("Cargo.lock"))?;
    run(cargo(&["run", "--quiet"]).current_dir(&user))
}

fn archives(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths = paths.collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "crate")).collect())
}

fn manifest(patches: &str) -> String {
    format!(
        "[package]\nname = \"user\"\nedition = \"2024\"\n\n[workspace]\n\n[profile.dev]\ndebug = false\n\n[dependencies]\n\
         dlock-rs = {{ version = \"0.1\", features = [\"redis\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n[patch.crates-io]\n{patches}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::sh::read;

    /// A registry refuses a package without some of this, and shows the rest.
    #[test]
    fn each_published_package_says_what_registries_show() {
        let metadata = read(&mut cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"])).unwrap();
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        let is_published = |package: &&Value| package["publish"].is_null();
        let published: Vec<_> = metadata["packages"].as_array().unwrap().iter().filter(is_published).collect();
        assert!(published.len() >= 16, "{}", published.len());
        for package in published {
            let name = &package["name"];
            for field in ["description", "license", "readme", "repository", "rust_version"] {
                assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
            }
            for field in ["keywords", "categories"] {
                assert!(package[field].as_array().is_some_and(|words| !words.is_empty()), "{name} has no {field}");
            }
            let targets = package["targets"].as_array().unwrap();
            if targets.iter().all(|target| {
                target["kind"] != serde_json::json!(["lib"]) && target["kind"] != serde_json::json!(["proc-macro"])
            }) {
                // docs.rs shows no program.
                continue;
            }
            let docs = &package["metadata"]["docs"]["rs"];
            assert_eq!(docs["all-features"], true, "docs.rs would show a part of {name}");
            assert_eq!(docs["rustdoc-args"], serde_json::json!(["--cfg", "docsrs"]), "{name}");
            // Without it, docs.rs would not show which feature an item needs.
            let is_library = |target: &&Value| {
                target["name"].as_str().unwrap().starts_with("dlock")
                    && target["src_path"].as_str().unwrap().ends_with("/src/lib.rs")
            };
            let library = targets.iter().find(is_library).unwrap()["src_path"].as_str().unwrap();
            let text = fs::read_to_string(library).unwrap();
            assert!(text.contains("#![cfg_attr(docsrs, feature(doc_cfg))]"), "{library}");
        }
    }
}
