//! Percent-decoding, for keys and for URLs.

/// Decodes `%2F` and the like; `None` for a broken escape, or for bytes that are not UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit()? << 4 | digit()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn escapes_become_bytes_and_broken_ones_are_refused() {
        assert_eq!(decode("a%2Fb%3a%C3%A9+"), Some("a/b:é+".to_owned()));
        for broken in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
