//! TLS with certificates of an own authority.

use dlock::backends::redis::Redis;
use dlock::{Backend, Clock, ErrorKind, Released};
use dlock_testkit::servers::RedisTls;

use crate::holds::take;
use crate::{SECOND, blocking, claim, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_certificates_and_strangers_are_refused() {
    let tls = blocking(|| RedisTls::start().unwrap()).await;
    let ([ca, cert, key], port) = (["ca.pem", "client.pem", "client.key"].map(|name| tls.file(name)), tls.port);
    let good = format!("rediss://127.0.0.1:{port}/1?ca={ca}&cert={cert}&key={key}");
    let redis = open(&good).await;
    let hold = take(&redis, &claim("k", SECOND)).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(format!("{redis:?}"), format!("Redis(127.0.0.1:{port}/1)"));

    let stranger = tls.file("stranger.pem");
    for (url, kind) in [
        // An authority that has not signed it; the system's; no certificate of ours.
        (format!("rediss://127.0.0.1:{port}/?ca={stranger}&cert={cert}&key={key}"), ErrorKind::Outage),
        (format!("rediss://127.0.0.1:{port}/"), ErrorKind::Outage),
        (format!("rediss://127.0.0.1:{port}/?ca={ca}"), ErrorKind::Outage),
        // One side speaks TLS and the other does not.
        (format!("rediss://127.0.0.1:{}/?ca={ca}", tls.server.port()), ErrorKind::Outage),
        (format!("redis://127.0.0.1:{port}/"), ErrorKind::Outage),
    ] {
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(&url);
        assert_eq!(*error.kind(), kind, "{url}: {error}");
        assert!(!format!("{error:?}").contains(&ca), "{error:?}");
    }
    for url in [
        format!("rediss://127.0.0.1:{port}/?ca={key}"),
        format!("rediss://127.0.0.1:{port}/?ca=/nowhere/at/all"),
        format!("rediss://127.0.0.1:{port}/?cert={cert}"),
        format!("redis://127.0.0.1:{port}/?ca={ca}"),
    ] {
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(&url);
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{url}: {error}");
        assert!(!format!("{error:?}").contains("nowhere"));
    }
}
