//! `cargo xtask servers`: checks the table of pins and installs what is missing. A test of one store asks for its pins alone.

use std::fs;
use std::process::Command;

use dlock_testkit::servers::{How, PINS, Pin, Tree, cache_folder, find_program};

use crate::apt::{self, OtherSuite};
use crate::maven;
use crate::sh::{Result, read};
use crate::tree::put;

/// Says what is there, and installs what is missing.
pub(crate) fn run() -> Result {
    run_first()?;
    run_later()
}

/// The packages of this machine's Debian release. A build needs one of them, `protoc`.
pub(crate) fn run_first() -> Result {
    install(&PINS.iter().filter(|pin| pin.how == How::Install).collect::<Vec<_>>())
}

/// The servers that are unpacked into folders of their own. Only the tests need them.
pub(crate) fn run_later() -> Result {
    install(&PINS.iter().filter(|pin| pin.how != How::Install).collect::<Vec<_>>())
}

/// The same for what the tests of one store need.
pub(crate) fn run_for(store: &str) -> Result {
    install(&PINS.iter().filter(|pin| pin.is_for(store)).collect::<Vec<_>>())
}

/// Installs what is missing of these.
pub(crate) fn install(pins: &[&'static Pin]) -> Result {
    let mut missing = Vec::new();
    for (&pin, state) in pins.iter().zip(look(pins)?) {
        match state {
            State::There(version) => eprintln!("  {:<18} {version}", pin.package),
            State::Other(version) => {
                let Pin { line, package, version: wanted, .. } = pin;
                let advice = format!("remove it, or change testkit/src/servers/pins.rs, line {line}");
                return Err(format!("{package} is installed as {version}, not {wanted}*: {advice}").into());
            }
            State::Missing => missing.push(pin),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(what_to_do) = obstacle(&missing) {
        return Err(what_to_do.into());
    }
    let (install, unpack): (Vec<_>, Vec<_>) = missing.into_iter().partition(|pin| pin.how == How::Install);
    if !install.is_empty() {
        eprintln!("  installing {}", install.iter().map(|pin| pin.package).collect::<Vec<_>>().join(", "));
        apt::update()?;
        apt::install(&install)?;
    }
    unpack_all(&unpack)?;
    // Each package must now be found with the version of its pin.
    for (pin, state) in pins.iter().zip(look(pins)?) {
        if !matches!(state, State::There(_)) {
            return Err(format!("{} was installed, but {} is not to be found", pin.package, pin.evidence).into());
        }
    }
    eprintln!("  everything is installed");
    Ok(())
}

enum State {
    There(String),
    /// There, in a version that is not the pinned one.
    Other(String),
    Missing,
}

fn look(pins: &[&Pin]) -> Result<Vec<State>> {
    let installed = installed(pins)?;
    Ok(pins.iter().map(|pin| look_for(pin, &installed)).collect())
}

fn look_for(pin: &Pin, installed: &[(String, String)]) -> State {
    let tree = match pin.how {
        How::Unpack { tree, .. } | How::UnpackAll { tree, .. } => Some(Tree::named(tree)),
        How::Maven { tree, .. } => Some(Tree::for_all(tree)),
        How::Install => None,
    };
    if let Some(tree) = tree {
        // Another version's tree is ours to replace.
        return match tree.version() {
            Some(version) if version.starts_with(pin.version) => State::There(format!("{version} (unpacked)")),
            _ => State::Missing,
        };
    }
    let version = installed.iter().find(|(package, _)| package == pin.package).map(|(_, version)| version.clone());
    match version {
        Some(version) if version.starts_with(pin.version) => State::There(version),
        Some(version) => State::Other(version),
        // Not Debian's: somebody put it there on purpose.
        None if find_program(pin.evidence).is_some() => State::There("of unknown version, not a package".to_owned()),
        None => State::Missing,
    }
}

/// The packages with their versions, as dpkg knows them; none without dpkg.
fn installed(pins: &[&Pin]) -> Result<Vec<(String, String)>> {
    if find_program("dpkg-query").is_none() {
        return Ok(Vec::new());
    }
    let mut command = Command::new("dpkg-query");
    command.args(["-W", "-f", "${db:Status-Status} ${Package} ${Version}\n"]).args(pins.iter().map(|pin| pin.package));
    // It ends with an error if one of the packages is unknown, and prints the others all the same.
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix("installed ")?.split_once(' '));
    Ok(lines.map(|(package, version)| (package.to_owned(), version.to_owned())).collect())
}

/// The commands to run by hand, if this task cannot run them.
fn obstacle(missing: &[&Pin]) -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") || find_program("apt-get").is_none() {
        let list: Vec<_> = missing.iter().map(|pin| format!("{} {}*", pin.package, pin.version)).collect();
        return Some(format!("cannot install here (no Debian, or no apt-get); install by hand: {}", list.join(", ")));
    }
    let is_root = read(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if is_root { None } else { as_root(missing) }
}

/// The command for root that installs what only root can install. The other packages are unpacked, which needs no right.
fn as_root(missing: &[&Pin]) -> Option<String> {
    let packages: Vec<_> = missing
        .iter()
        .filter(|pin| pin.how == How::Install)
        .map(|pin| format!("'{}={}*'", pin.package, pin.version))
        .collect();
    let install = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    (!packages.is_empty())
        .then(|| format!("only root can install packages here; run as root `{install}`, and then this command again"))
}

fn unpack_all(pins: &[&Pin]) -> Result {
    let mut opened: Vec<(&str, OtherSuite)> = Vec::new();
    for pin in pins {
        let (suite, tree, whole) = match pin.how {
            How::Unpack { suite, tree } => (suite, tree, false),
            How::UnpackAll { suite, tree } => (suite, tree, true),
            How::Maven { group, sha256, tree } => {
                maven::unpack(pin, group, sha256, &Tree::for_all(tree))?;
                continue;
            }
            How::Install => continue,
        };
        if !opened.iter().any(|(name, _)| *name == suite) {
            eprintln!("  reading the lists of {suite}");
            opened.push((suite, OtherSuite::open(suite)?));
        }
        let Some((_, other)) = opened.iter().find(|(name, _)| *name == suite) else { continue };
        unpack(pin, other, &Tree::named(tree), whole)?;
    }
    Ok(())
}

fn unpack(pin: &Pin, other: &OtherSuite, tree: &Tree, whole: bool) -> Result {
    let offered = other.offered(pin.package)?;
    let version = pin.choose(&offered)?;
    eprintln!("  unpacking {} {version} into {}", pin.package, tree.root().display());
    fs::create_dir_all(cache_folder())?;
    let draft = tempfile::tempdir_in(cache_folder())?;
    let wanted = format!("{}={version}", pin.package);
    let packages = if whole { other.closure(&wanted)? } else { vec![wanted] };
    other.unpack(&packages, draft.path())?;
    put(draft, tree, version)
}

#[cfg(test)]
mod tests {
    use dlock_testkit::servers::{GO, PINS};

    use super::as_root;
    use crate::workspace::Workspace;

    #[test]
    fn each_pin_names_stores_that_exist() {
        let workspace = Workspace::of(crate::sh::root()).unwrap();
        for pin in PINS.iter().filter(|pin| pin.package != "prometheus") {
            let unknown: Vec<_> = pin.stores().filter(|store| !workspace.is_store(store)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", pin.package);
        }
    }

    #[test]
    fn without_root_the_error_is_the_command_for_root() {
        let pin = |package| PINS.iter().find(|pin| pin.package == package).unwrap();
        let told = as_root(&[pin("redis-server"), pin("mysql-server-core"), pin("maven"), &GO]).unwrap();
        let command = "`apt-get install --no-install-recommends 'redis-server=5:7.0.15*' 'maven=3.8.*'`";
        assert!(told.contains(command), "{told}");
        assert_eq!(
            as_root(&[pin("mysql-server-core"), &GO]),
            None,
            "it is unpacked, for which nobody needs to be root"
        );
    }
}
