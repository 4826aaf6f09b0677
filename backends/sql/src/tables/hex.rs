//! Values in the text of a statement, where several statements leave in one message. A prepared statement cannot be one of several.

use std::fmt::Write;

/// Bytes as hexadecimal digits. A literal of digits needs no escape, whatever the server's mode is.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        // Writing into a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex(b"\0a'\xff"), "006127ff");
    }
}
