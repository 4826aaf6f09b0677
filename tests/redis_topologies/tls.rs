//! TLS with certificates of an own authority.

use std::path::Path;
use std::process::{Command, Stdio};

use dlock::backends::redis::Redis;
use dlock::{Backend, Clock, ErrorKind, Released};
use dlock_testkit::servers::{self, Instance};

use crate::holds::take;
use crate::{SECOND, blocking, claim, open};

/// A server that speaks nothing but TLS on its second port, and the folder with the certificates.
struct Tls {
    server: Instance,
    folder: tempfile::TempDir,
    port: u16,
}

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("openssl is not installed here; run: cargo xtask servers");
    assert!(done.success(), "openssl {arguments}");
}

fn start() -> Tls {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for authority in ["ca", "stranger"] {
        openssl(at, &format!("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"));
    }
    std::fs::write(at.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    for name in ["server", "client"] {
        openssl(at, &format!("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(at, &format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem"));
    }
    let port = servers::free_port();
    let (tls_port, file) = (port.to_string(), |name: &str| at.join(name).display().to_string());
    let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let options = ["--tls-port", &tls_port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let server = Instance::start(servers::Redis::with(&options)).unwrap();
    Tls { server, folder, port }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_certificates_and_strangers_are_refused() {
    let Tls { server, folder, port } = blocking(start).await;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let good = format!("rediss://127.0.0.1:{port}/1?ca={ca}&cert={cert}&key={key}");
    let redis = open(&good).await;
    let hold = take(&redis, &claim("k", SECOND)).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(format!("{redis:?}"), format!("Redis(127.0.0.1:{port}/1)"));

    let stranger = file("stranger.pem");
    for (url, kind) in [
        // An authority that has not signed it; the system's; no certificate of ours.
        (format!("rediss://127.0.0.1:{port}/?ca={stranger}&cert={cert}&key={key}"), ErrorKind::Outage),
        (format!("rediss://127.0.0.1:{port}/"), ErrorKind::Outage),
        (format!("rediss://127.0.0.1:{port}/?ca={ca}"), ErrorKind::Outage),
        // One side speaks TLS and the other does not.
        (format!("rediss://127.0.0.1:{}/?ca={ca}", server.port()), ErrorKind::Outage),
        (format!("redis://127.0.0.1:{port}/"), ErrorKind::Outage),
    ] {
        let error = Redis::connect(&url, &Clock::system()).await.expect_err(&url);
        assert_eq!(*error.kind(), kind, "{url}: {error}");
        assert!(!format!("{error:?}").contains(&*folder.path().display().to_string()), "{error:?}");
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
