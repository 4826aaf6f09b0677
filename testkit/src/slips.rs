//! Texts with a slip of the finger, to look whether an error about them shows a secret.

use std::error::Error;
use std::fmt::Debug;

use crate::text_of;

/// The characters that mean something in a URL.
const MEANING: &str = "@:/?#%&,=[] é";

/// The text with one slip: cut off, or a character left away, typed twice, or with one that means something in a URL in its
/// place or before it.
pub fn slips(text: &str) -> impl Iterator<Item = String> + '_ {
    text.char_indices().flat_map(move |(at, old)| {
        let (before, after) = (&text[..at], &text[at + old.len_utf8()..]);
        let meant = MEANING
            .chars()
            .flat_map(move |new| [format!("{before}{new}{after}"), format!("{before}{new}{old}{after}")]);
        [before.to_owned(), format!("{before}{after}"), format!("{before}{old}{old}{after}")].into_iter().chain(meant)
    })
}

/// A password of letters that no error has side by side, between characters that mean something in a URL.
pub const SECRET: &str = "qzj@qzj:qzj/qzj?qzj#qzj%qzj&qzj,qzj=qzjé";

/// Whether any piece of [`SECRET`] is in the text.
pub fn shows_secret(text: &str) -> bool {
    ["qz", "zj"].iter().any(|piece| text.contains(piece))
}

/// [`SECRET`] in the ways in which people write a password into a URL: as it is, percent-encoded, half of each; and one that
/// needs no encoding. The odd ones are as they should be.
pub fn spellings() -> [String; 4] {
    let encode = |all: bool| {
        let encoded = SECRET.bytes().map(|byte| match byte {
            b'a'..=b'z' => char::from(byte).to_string(),
            byte if all || byte == b'%' => format!("%{byte:02X}"),
            byte => char::from(byte).to_string(),
        });
        encoded.collect::<String>()
    };
    [SECRET.to_owned(), encode(true), encode(false), "qzj".to_owned()]
}

/// Reads these URLs with every [spelling](spellings) of the secret in the place of `{}`, with and without a slip. No error
/// may show it; nor may what was read, by its `Debug`, where the secret is encoded as it should be.
///
/// # Panics
/// If the secret is shown, or if the slips are all taken or all refused.
pub fn assert_hidden<T: Debug, E: Error>(urls: &[&str], read: impl Fn(&str) -> Result<T, E>) {
    let (mut taken, mut refused) = (0, 0);
    for (url, (number, secret)) in
        urls.iter().flat_map(|url| spellings().into_iter().enumerate().map(move |s| (url, s)))
    {
        let url = url.replace("{}", &secret);
        for slip in slips(&url).chain([url.clone()]) {
            let shown = match read(&slip) {
                Ok(read) => {
                    taken += 1;
                    // Half a password that is not encoded may be the name of a host.
                    if number % 2 == 0 { String::new() } else { format!("{read:?} {read:#?}") }
                }
                Err(error) => {
                    refused += 1;
                    text_of(&error)
                }
            };
            assert!(!shows_secret(&shown), "{slip}: {shown}");
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused: the slips do not reach both sides");
}
