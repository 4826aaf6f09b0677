//! The keys of a command, and the slot that they lead to in a cluster.

use ::redis::{Arg, Cmd};
use dlock_contract::{Error, ErrorKind, Result};

use crate::layout::name::beside;
use crate::layout::slots::{Slot, fence};
use crate::scripts::lua::Lua;

/// Declares all keys of a script instead of just the locks'.
pub(crate) fn spread(command: &Cmd, lua: &Lua) -> Result<Cmd> {
    let args = simple(command);
    let (keys, rest) = parts(command)?;
    let name = keys[0];
    let mut whole = Cmd::with_capacity(args.len() + 9, 640);
    whole.arg(args[0]).arg(args[1]);
    match lua.keys {
        None => {
            whole.arg(1).arg(name);
        }
        Some(more) => {
            // The second key is the counter, wherever a script has more than one.
            let others = keys.get(2..).unwrap_or_default();
            whole.arg(2 + others.len() + (1 + others.len()) * more.len()).arg(name).arg(fence(Slot::for_key(name)));
            others.iter().for_each(|other| {
                whole.arg(*other);
            });
            for name in [name].iter().chain(others) {
                for suffix in more {
                    whole.arg(beside(name, suffix));
                }
            }
        }
    }
    rest.iter().for_each(|argument| {
        whole.arg(*argument);
    });
    Ok(whole)
}

pub(crate) type Arguments<'a> = Vec<&'a [u8]>;

/// The keys of a script's call, of which there is at least one, and its arguments.
pub(crate) fn parts(command: &Cmd) -> Result<(Arguments<'_>, Arguments<'_>)> {
    let args = simple(command);
    let keys = args.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
    let keys = keys.filter(|count| (1..=args.len() - 3).contains(count));
    let keys = keys.ok_or_else(|| Error::new(ErrorKind::Internal, "a script was called without a key"))?;
    Ok((args[3..3 + keys].to_vec(), args[3 + keys..].to_vec()))
}

/// The slot of the command's key, which is the first argument, or the fourth of a script.
pub(crate) fn slot_of_command(command: &Cmd) -> Option<Slot> {
    let mut args = simple(command).into_iter();
    let is_script = args.next().is_some_and(|name| name.starts_with(b"EVAL"));
    args.nth(if is_script { 2 } else { 0 }).map(Slot::for_key)
}

pub(crate) fn simple(command: &Cmd) -> Arguments<'_> {
    let simple = command.args_iter().map(|argument| match argument {
        Arg::Simple(bytes) => bytes,
        _ => &[],
    });
    simple.collect()
}
