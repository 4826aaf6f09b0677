//! Commands: a call of a script, and any other one.

use ::redis::{Cmd, ServerErrorKind, ToRedisArgs, Value};

use crate::scripts::lua::Lua;

/// A call of a script, without the number of its keys and what follows: `build` adds them.
pub fn call(lua: &Lua, whole: bool, build: &impl Fn(&mut Cmd)) -> Cmd {
    let mut command = Cmd::with_capacity(7, if whole { lua.text.len() + 512 } else { 320 });
    if whole {
        command.arg("EVAL").arg(&lua.text);
    } else {
        command.arg("EVALSHA").arg(&lua.digest);
    }
    build(&mut command);
    command
}

/// Whether the server does not know the script.
pub fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// Adds the one key of a script.
pub fn on(command: &mut Cmd, key: impl ToRedisArgs) -> &mut Cmd {
    command.arg(1).arg(key)
}

/// A command of these words.
pub(crate) fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}
