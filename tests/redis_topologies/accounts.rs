//! Accounts with just what locks need, and with one right less.

use dlock::backends::redis::Redis;
use dlock::{Attempt, Backend, Clock, ErrorKind, Stand};
use dlock_testkit::servers::{self, Instance};

use crate::holds::take;
use crate::{SECOND, blocking, claim, open};

/// As docs/backends.md lists them.
pub(crate) const RIGHTS: &str = "~dl1:* &dl1:p:* -@all +eval +evalsha +set +get +del +incrby +pexpire +pttl +exists +time +zadd +zrem \
                      +zpopmin +hset +hget +hdel +publish +subscribe";
/// For kinds and `min_hold`.
const KINDS: &str = "+zrange +zcard +zscore +hgetall";
/// For the look at the server; without them dlock warns.
const LOOKS: &str = "+role +info +config|get +script|load";

async fn server() -> Instance {
    blocking(|| Instance::start(servers::Redis::default()).unwrap()).await
}

fn account(server: &Instance, name: &str, rights: &str) -> String {
    server.ask(&format!("ACL SETUSER {name} reset on >pw {rights}")).unwrap();
    format!("redis://{name}:pw@127.0.0.1:{}/", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listed_rights_are_enough_and_each_one_is_missed_by_its_name() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &format!("{RIGHTS} {KINDS} {LOOKS}"))).await;
    let hold = take(&redis, &claim("k", SECOND)).await;
    let until = Stand::Until(Clock::system().now().after(60 * SECOND));
    let waiting = claim("k", SECOND);
    let Attempt::Contended(mut wake) = redis.try_acquire(&waiting, until).await.unwrap() else { panic!() };
    redis.release(&hold).await.unwrap();
    let news = tokio::time::timeout(SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, dlock::Signal::Granted(_)));

    let commands = RIGHTS.split_whitespace().filter_map(|right| right.strip_prefix('+'));
    for command in commands.filter(|command| !["publish", "subscribe"].contains(command)) {
        let url = account(&server, "less", &format!("{RIGHTS} {KINDS} {LOOKS} -{command}"));
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(command);
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{command}: {error}");
        assert!(!error.is_retryable() && error.to_string().contains(&format!("`{command}`")), "{command}: {error}");
    }
    // What it can do without.
    for right in [
        "-subscribe",
        "-publish",
        "resetchannels",
        "-role",
        "-info",
        "-config|get",
        "-script|load",
        "-zrange",
        "-hgetall",
    ] {
        let redis = open(&account(&server, "lean", &format!("{RIGHTS} {KINDS} {LOOKS} {right}"))).await;
        take(&redis, &claim(right, SECOND)).await;
    }
    let url = account(&server, "elsewhere", &format!("{RIGHTS} {KINDS} {LOOKS} resetkeys ~other:*"));
    let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("dl1:*"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_later_is_told_too() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &format!("{RIGHTS} {KINDS} {LOOKS}"))).await;
    let hold = take(&redis, &claim("k", SECOND)).await;
    for (right, named) in [("-set", Some("`set`")), ("-evalsha -eval +set", None)] {
        server.ask(&format!("ACL SETUSER whole {right}")).unwrap();
        let error = match named {
            Some(_) => redis.try_acquire(&claim("other", SECOND), Stand::No).await.unwrap_err(),
            None => redis.release(&hold).await.unwrap_err(),
        };
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(named.is_none_or(|name| error.to_string().contains(name)), "{error}");
    }
    // Inside of a script the server does not say which one it is.
    server.ask("ACL SETUSER whole +evalsha +eval -pexpire").unwrap();
    let error = redis.renew(&[&hold]).await.remove(0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
}
