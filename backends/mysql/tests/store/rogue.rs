//! Servers that are after the password, or after the memory of their clients.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::tls::{PASSWORD, refused};

#[tokio::test]
async fn a_rogue_server_gets_no_password_from_a_client_that_verifies() {
    for tls in [false, true] {
        for query in ["tls=verify", "tls=require"] {
            // A server without TLS gets no password with `require` either; a server with TLS would.
            if tls && query == "tls=require" {
                continue;
            }
            let heard = heard_by_a_rogue(tls, query).await;
            assert!(!heard, "{query}, the server offers TLS: {tls}");
        }
    }
}

/// The fault of the client library that docs/upstream/sqlx-mysql.md describes. When this fails, the library is mended:
/// take the page away, and say in backends/mysql/README.md from which version on.
#[tokio::test]
async fn the_client_library_still_gives_its_password_to_a_server_that_greets_with_clear_text() {
    assert!(heard_by_a_rogue(false, "tls=off").await);
}

/// The other one: parts of an answer that are all full go on for ever, and the client keeps them all.
#[tokio::test]
async fn the_client_library_still_keeps_an_answer_of_any_size() {
    const PART: usize = 0xff_ffff;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mysql://app:{PASSWORD}@{}/test?tls=off", listener.local_addr().unwrap());
    let rogue = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(&greeting("mysql_native_password", false)).await.unwrap();
        client.read_u8().await.unwrap();
        let part = [&[0xff, 0xff, 0xff, 0][..], &vec![0; PART]].concat();
        let mut taken = 0;
        for _ in 0..PARTS {
            if client.write_all(&part).await.is_err() {
                break;
            }
            taken += PART;
        }
        taken
    });
    refused(&url).await;
    // The last megabytes may be in the socket still.
    assert!(rogue.await.unwrap() >= (PARTS - 1) * PART, "the client ended the connection: it is mended");
}

/// So many parts are megabytes; the packets of a lock need less than a kilobyte.
const PARTS: usize = 4;

/// Whether a server that greets with `mysql_clear_password` hears the password.
async fn heard_by_a_rogue(tls: bool, query: &str) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mysql://app:{PASSWORD}@{}/test?{query}", listener.local_addr().unwrap());
    let rogue = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(&greeting("mysql_clear_password", tls)).await.unwrap();
        let mut heard = Vec::new();
        // The client waits for an answer meanwhile.
        let _ = tokio::time::timeout(Duration::from_secs(3), client.read_to_end(&mut heard)).await;
        heard
    });
    refused(&url).await;
    let heard = rogue.await.unwrap();
    heard.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes())
}

/// The first packet of a server, of protocol 10.
fn greeting(method: &str, tls: bool) -> Vec<u8> {
    // Protocol 4.1, secure connection, methods by name; perhaps TLS.
    let abilities = 0x200_u32 | 0x8000 | 0x8_0000 | if tls { 0x800 } else { 0 };
    let [low, lower, high, higher] = abilities.to_le_bytes();
    let mut packet = b"\x0a8.0.30\0\x01\0\0\0aaaaaaaa\0".to_vec();
    packet.extend([low, lower, 45, 2, 0, high, higher, 21]);
    packet.extend([0; 10]);
    packet.extend(b"bbbbbbbbbbbb\0");
    packet.extend(method.as_bytes());
    packet.push(0);
    let mut framed = vec![u8::try_from(packet.len()).unwrap(), 0, 0, 0];
    framed.extend(packet);
    framed
}
