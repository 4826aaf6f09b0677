//! Fenced writes to Redis: the write and the comparison of tokens are one step in the server.
//!
//! Beside a resource `stock:42` stands its guard `stock:42:dlfence`, a hash with the lock's name and the highest token
//! seen. The guard has no expiry and is never deleted: a guard that forgets lets the oldest writer in. In a cluster
//! both keys must be in one slot, so give the resource a hash tag: `{stock:42}`, guard `{stock:42}:dlfence`.
//!
//! It protects only against writers that go through here. Redis forgets guards as it forgets everything else: with a
//! restart without its file, a failover to a replica that lags, `FLUSHALL`, or an eviction policy.
//!
//! ```no_run
//! # async fn example(fence: dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_redis::fenced::{Script, delete, set};
//!
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut connection = client.get_multiplexed_async_connection().await?;
//! // Refused with `FenceStale` once a later holder has written.
//! set(&mut connection, &fence, "stock:42", 7).await?;
//!
//! // Any other write: the script runs only if the token is admitted, in the same step.
//! let deduct = Script::new("return redis.call('DECRBY', KEYS[1], ARGV[1])");
//! let left = deduct.run(&mut connection, &fence, "stock:42", &["2"]).await?;
//! assert_eq!(left, redis::Value::Int(5));
//! delete(&mut connection, &fence, "stock:42").await?;
//! # Ok(())
//! # }
//! ```

use std::sync::LazyLock;

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, ErrorKind as Kind, RedisError, ServerErrorKind, ToRedisArgs, Value};
use dlock_contract::{Error, ErrorKind, Fence, Result};

use crate::reply::fault;

/// Admits the token, then runs what follows with the resource in `KEYS` and the rest in `ARGV`. Tokens are compared as
/// digits, since Lua's numbers are not exact beyond 2^53 and other stores' tokens may be.
const ADMIT: &str = r"
local lock,token=ARGV[1],ARGV[2]
local guard=redis.call('HMGET',KEYS[2],'lock','token')
if guard[1] and guard[1]~=lock then return {'foreign'} end
local seen=guard[2]
if seen and (#seen>#token or (#seen==#token and seen>token)) then return {'stale',seen} end
if seen~=token then redis.call('HSET',KEYS[2],'lock',lock,'token',token) end
local rest={}
for i=3,#ARGV do rest[i-2]=ARGV[i] end
local function write(KEYS,ARGV)
";

const RUN: &str = "
end
return {'done',write({KEYS[1]},rest)}
";

/// Sets a string.
///
/// # Errors
/// [`ErrorKind::FenceStale`] if a higher token has written there; [`ErrorKind::FenceInvalid`] if the resource is
/// guarded by another lock; what the server refuses.
pub async fn set(
    connection: &mut impl ConnectionLike,
    fence: &Fence,
    key: &str,
    value: impl ToRedisArgs,
) -> Result<()> {
    static SET: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('SET',KEYS[1],ARGV[1])"));
    if value.num_of_args() != 1 {
        return Err(Error::config("value", "a string in Redis takes exactly one value"));
    }
    SET.run(connection, fence, key, value).await.map(drop)
}

/// Deletes the resource, but not its guard.
///
/// # Errors
/// As [`set`].
pub async fn delete(connection: &mut impl ConnectionLike, fence: &Fence, key: &str) -> Result<()> {
    static DELETE: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('DEL',KEYS[1])"));
    DELETE.run(connection, fence, key, NOTHING).await.map(drop)
}

/// No arguments for [`Script::run`].
pub const NOTHING: &[&str] = &[];

/// A write of your own, in Lua, that runs only with an admitted token and in the same step.
///
/// The text is yours and constant: whatever varies comes in as an argument. `KEYS[1]` is the resource, `ARGV` the
/// arguments. If it fails, the token still counts as seen.
#[derive(Debug)]
pub struct Script(::redis::Script, String);

impl Script {
    /// A script with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let whole = [ADMIT, text, RUN].concat();
        Self(::redis::Script::new(&whole), whole)
    }

    /// Runs the script on the resource `key`, and returns its result: nil if it returned nothing.
    ///
    /// # Errors
    /// As [`set`].
    pub async fn run(
        &self,
        connection: &mut impl ConnectionLike,
        fence: &Fence,
        key: &str,
        arguments: impl ToRedisArgs,
    ) -> Result<Value> {
        let guard = format!("{key}:dlfence");
        let build = |how: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(how).arg(script).arg(2).arg(key).arg(&guard);
            command.arg(fence.key().as_str()).arg(fence.get()).arg(&arguments);
            command
        };
        let mut answer = send(connection, &build("EVALSHA", self.0.get_hash())).await;
        if matches!(&answer, Err(error) if error.kind() == Kind::Server(ServerErrorKind::NoScript)) {
            // Unknown means that nothing has run.
            answer = send(connection, &build("EVAL", &self.1)).await;
        }
        let answer = answer.map_err(|error| fence.named(failure(&error)))?;
        read(answer, fence)
    }
}

async fn send(connection: &mut impl ConnectionLike, command: &Cmd) -> std::result::Result<Value, RedisError> {
    connection.req_packed_command(command).await?.extract_error()
}

fn failure(error: &RedisError) -> Error {
    if error.kind() == Kind::Server(ServerErrorKind::CrossSlot) {
        let text = "in a cluster the resource needs a hash tag, as in {stock:42}, so that its guard is in its slot (CROSSSLOT)";
        return Error::config("key", text);
    }
    fault::client(error)
}

fn read(answer: Value, fence: &Fence) -> Result<Value> {
    let Value::Array(parts) = &answer else { return Err(fault::unexpected(&answer)) };
    let mut parts = parts.iter().cloned();
    match (parts.next(), parts.next()) {
        (Some(Value::BulkString(word)), result) if word == b"done" => Ok(result.unwrap_or(Value::Nil)),
        (Some(Value::BulkString(word)), Some(Value::BulkString(seen))) if word == b"stale" => {
            let seen = String::from_utf8_lossy(&seen).parse().map_err(|_| {
                Error::new(ErrorKind::CorruptState, "the guard key beside the resource does not hold a token")
            })?;
            Err(fence.named(Error::fence_stale(fence, seen)))
        }
        (Some(Value::BulkString(word)), _) if word == b"foreign" => Err(fence.named(Error::new(
            ErrorKind::FenceInvalid,
            "the resource is guarded by another lock, and tokens of two locks cannot be compared",
        ))),
        _ => Err(fault::unexpected(&answer)),
    }
}
