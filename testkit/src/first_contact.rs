//! The table of the errors of a first contact, `docs/first-contact.md`: the tests of each store write its part.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/first-contact.md");

/// The port of a server that gives the same answer to everything, or none.
pub fn server_that_says(answer: Option<&'static str>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if let Some(answer) = answer {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(answer.repeat(8).as_bytes());
            }
            open.push(stream);
        }
    });
    port
}

/// A port on which nobody listens.
pub fn port_of_nobody() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The text of an error, without what differs from run to run: these ports, long numbers, and what follows `vague` up to the
/// next semicolon. It must name the server.
///
/// # Panics
/// If it does not.
pub fn first_contact_text(message: &str, ports: &[u16], vague: &str) -> String {
    let named = ports.iter().any(|port| message.contains(&port.to_string()));
    let host = ["127.0.0.1", "localhost", "nowhere.invalid"].iter().any(|host| message.contains(host));
    assert!(named && host && !message.contains("dlock does not know"), "{message}");
    let mut text = ports.iter().fold(message.to_owned(), |text, port| text.replace(&port.to_string(), "PORT"));
    let is_number = |word: &&str| word.len() > 12 && word.chars().all(|c| c.is_ascii_hexdigit());
    for number in message.split(|c: char| !c.is_alphanumeric()).filter(is_number) {
        text = text.replace(number, "ID");
    }
    text = text.replace('\n', " ");
    match text.split_once(vague).and_then(|(before, rest)| Some((before, rest.split_once(';')?.1))) {
        Some((before, after)) if !vague.is_empty() => format!("{before}{vague}…;{after}"),
        _ => text,
    }
}

/// Compares the table of a store with the page; with `DLOCK_WRITE=1` writes it.
///
/// # Panics
/// If they differ.
pub fn first_contact_table(store: &str, rows: &[(&str, String)]) {
    let page = fs::read_to_string(PAGE).unwrap();
    let begin = format!("<!-- {store} -->\n");
    let (before, rest) = page.split_once(&begin).expect("the table begins");
    let (table, after) = rest.split_once("<!-- end -->").expect("it ends");
    let rows: String = rows.iter().map(|(fault, text)| format!("| {fault} | {text} |\n")).collect();
    let written = format!("| fault | text |\n| --- | --- |\n{rows}");
    if std::env::var_os("DLOCK_WRITE").is_some() {
        fs::write(PAGE, format!("{before}{begin}{written}<!-- end -->{after}")).unwrap();
    } else {
        assert_eq!(table, written, "run this test with DLOCK_WRITE=1 and look at the difference");
    }
}
