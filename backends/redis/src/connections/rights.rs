//! Checks before the first lock which commands the server knows and the user may run. The error of a script does not
//! name the refused command.

use ::redis::{Cmd, Value};
use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{Seldom, line};

use crate::reply::fault;
use crate::scripts::call::call;
use crate::scripts::lua::Lua;

/// The commands that every lock needs.
pub(crate) const EXCLUSIVE: &[&str] = &[
    "set", "get", "del", "incrby", "pexpire", "pttl", "exists", "time", "zadd", "zrem", "zpopmin", "hset", "hget",
    "hdel", "evalsha",
];

/// The commands that a hand-over needs too. An account that may neither publish nor subscribe waits by polling.
const PUSHES: [&str; 3] = ["publish", "spublish", "pubsub"];

/// The commands that readers, writers, permits and `min_hold` need too.
pub(crate) const SHARED: &[&str] = &["zrange", "zcard", "zscore", "hgetall"];

/// Returns those of its arguments that the user may not run. Arguments that the server does not know come with a `?` in
/// front. It only asks, and runs none of them. It declares no key, so each server of a cluster answers.
const MISSING: &str = r"
local k='dl1:{dlock}'
local with={set={k,''},incrby={k,1},pexpire={k,1},zadd={k,1,''},zrem={k,''},zrange={k,0,0},hset={k,'',''},hget={k,''},
  hdel={k,''},zscore={k,''},time={},evalsha={'','0'},publish={'dl1:p:x',''},spublish={'dl1:p:x',''},
  pubsub={ARGV[#ARGV],'dl1:p:x'},wait={1,0}}
local missing={}
if not redis.acl_check_cmd then return redis.error_reply('ERR no acl_check_cmd') end
for i=1,#ARGV-1 do
  local c=ARGV[i]
  -- It raises an error for an unknown one, as for one that was renamed.
  local known,may=pcall(redis.acl_check_cmd,c,unpack(with[c] or {k}))
  if not known then table.insert(missing,'?'..c) elseif not may then table.insert(missing,c) end
end
return missing
";

/// The command that `wait_replicas` needs too.
const REPLICAS: &str = "wait";

/// The request that asks for missing rights.
pub(crate) fn question(is_cluster: bool, waits_for_replicas: bool) -> Cmd {
    let (push, count) =
        if is_cluster { (["spublish", "pubsub"], "shardnumsub") } else { (["publish", "pubsub"], "numsub") };
    call(&Lua::new(&[MISSING]).on(None), true, &|command: &mut Cmd| {
        command.arg(0).arg(EXCLUSIVE).arg(SHARED).arg(&push).arg(waits_for_replicas.then_some(REPLICAS)).arg(count);
    })
}

/// Refuses a user without the rights that every lock needs, and names the missing ones. If `warned_of` names the server, the log
/// has a warning about rights that only some locks need.
pub(crate) fn judge(answer: &Value, warned_of: Option<&str>) -> Result<()> {
    let missing = match answer {
        Value::Array(missing) => missing,
        Value::ServerError(error) if error.code() == "ERR" => {
            // This server has no `acl_check_cmd`. A missing right shows when a request needs it.
            line(|| tracing::debug!("this Redis cannot tell what its user may do"));
            return Ok(());
        }
        other => return Err(fault::unexpected(other)),
    };
    let names = missing.iter().filter_map(|name| match name {
        Value::BulkString(name) => std::str::from_utf8(name).ok(),
        _ => None,
    });
    let (unknown, forbidden): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with('?'));
    let unknown: Vec<_> = unknown.into_iter().map(|name| &name[1..]).collect();
    let is_needed = |name: &&str| EXCLUSIVE.contains(name) || *name == REPLICAS;
    if let Some(needed) = unknown.iter().find(|name| is_needed(name)) {
        return Err(fault::unknown_command(needed));
    }
    let (missing_for_locks, others): (Vec<_>, Vec<_>) = forbidden.into_iter().chain(unknown).partition(is_needed);
    if !missing_for_locks.is_empty() {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "the Redis user may not run {}, which locks need, on the keys dl1:*; grant it by ACL SETUSER",
                missing_for_locks.iter().map(|name| fault::with_purpose(name)).collect::<Vec<_>>().join(", ")
            ),
        ));
    }
    let Some(host) = warned_of else { return Ok(()) };
    // `ready()` asks too, as often as a probe or a page likes.
    static TOLD: Seldom = Seldom::new();
    let (pushes, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|name| PUSHES.contains(name));
    if !pushes.is_empty() {
        let host = host.to_owned();
        TOLD.line(format!("{host} {pushes:?}"), move || {
            tracing::warn!(
                host,
                "the Redis user may not publish to dl1:p:* or count who listens there, or the server does not know the \
                 commands for it: so waiters are not told of releases, and poll"
            );
        });
    }
    if !others.is_empty() {
        let (host, commands) = (host.to_owned(), others.join(" "));
        TOLD.line(format!("{host} {commands}"), move || {
            tracing::warn!(
                host,
                commands,
                "the Redis user may not run what readers, writers, permits and min_hold need, or the server does not know it"
            );
        });
    }
    Ok(())
}
