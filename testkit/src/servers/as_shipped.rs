//! A server with the settings that it has by itself.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::Recipe;
use super::changed::Changed;

/// The server of a recipe without the settings that the recipe changes for tests. What keeps it private stays: ports, folders,
/// sockets.
pub fn as_shipped(recipe: impl Recipe) -> impl Recipe {
    let eased = recipe.eased();
    Changed::new(recipe, move |_: &Path, command: Command| Ok(without(&command, eased)))
}

/// The command without these options. The value of one stands behind `=`, or in the next argument.
fn without(command: &Command, options: &[&str]) -> Command {
    let starts = |argument: &OsStr, start: &str| argument.as_encoded_bytes().starts_with(start.as_bytes());
    let mut bare = Command::new(command.get_program());
    let mut arguments = command.get_args().peekable();
    while let Some(argument) = arguments.next() {
        match options.iter().find(|option| starts(argument, option)) {
            None => drop(bare.arg(argument)),
            Some(option) if option.ends_with('=') => {}
            Some(_) => drop(arguments.next_if(|value| !starts(value, "-"))),
        }
    }
    bare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        bare.current_dir(folder);
    }
    bare
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::as_shipped;
    use crate::servers::{Consul, Etcd, MariaDb, MySql, Postgres, Recipe, Redis};

    fn arguments(command: &std::process::Command) -> Vec<String> {
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    fn differs(recipe: impl Recipe + Clone) {
        let command = |recipe: &dyn Recipe| arguments(&recipe.command(Path::new("/tmp/a"), 1).unwrap());
        let (eased, all) = (recipe.eased(), command(&recipe));
        let left = command(&as_shipped(recipe));
        for option in eased {
            assert!(all.iter().any(|argument| argument.starts_with(option)), "{option} is in none of {all:?}");
            assert!(!left.iter().any(|argument| argument.starts_with(option)), "{option} is still in {left:?}");
        }
        assert!(!eased.is_empty() && left.iter().all(|argument| all.contains(argument)), "{left:?}");
    }

    #[test]
    fn what_a_recipe_changes_for_tests_is_gone_and_nothing_else() {
        differs(Redis::default());
        differs(MySql::default());
        differs(MariaDb::default());
        differs(Postgres::default());
        differs(Consul::default());
        differs(Etcd::default());
        let redis = arguments(&as_shipped(Redis::default()).command(Path::new("/tmp/a"), 7).unwrap());
        let kept = ["--bind", "127.0.0.1", "--port", "7", "--dir", "/tmp/a", "--daemonize", "no", "--appendonly", "no"];
        assert_eq!(redis, kept);
    }
}
