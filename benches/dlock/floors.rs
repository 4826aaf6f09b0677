//! The floor of Redis: the raw requests of the same client, without dlock.

use redis::aio::MultiplexedConnection;

use crate::Failed;

/// The compare-and-delete that everybody uses.
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// One multiplexed connection and the release script.
#[derive(Clone)]
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    release: String,
}

impl Floor {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failed> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let release = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).query_async(&mut connection).await?;
        Ok(Self { connection, release })
    }

    /// SET NX PX, then EVALSHA: the lock of the textbooks, without a fence.
    pub(crate) async fn classic(&mut self, key: &str) -> Result<(), Failed> {
        let token = token();
        let _: redis::Value = redis::cmd("SET")
            .arg(key)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(30_000)
            .query_async(&mut self.connection)
            .await?;
        self.release(key, &token).await
    }

    /// The commands that dlock sends, sent raw: the fence beside the SET.
    pub(crate) async fn own(&mut self, key: &str, fence: &str) -> Result<(), Failed> {
        let token = token();
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(key).arg(&token).arg("NX").arg("PX").arg(30_000);
        pipe.cmd("INCR").arg(fence);
        let _: (redis::Value, u64) = pipe.query_async(&mut self.connection).await?;
        self.release(key, &token).await
    }

    async fn release(&mut self, key: &str, token: &str) -> Result<(), Failed> {
        let released: i64 = redis::cmd("EVALSHA")
            .arg(&self.release)
            .arg(1)
            .arg(key)
            .arg(token)
            .query_async(&mut self.connection)
            .await?;
        if released == 1 { Ok(()) } else { Err("the floor's lock was not its own".into()) }
    }
}

fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}
