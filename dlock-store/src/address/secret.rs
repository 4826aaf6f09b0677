//! A text that is never shown.

use std::fmt;

/// A password, or another text that no error and no log may show: `Debug` and `Display` show none of it.
///
/// ```
/// let password = dlock_store::Secret::new("hunter2".to_owned());
/// assert_eq!(format!("{password} {password:?}"), "… …");
/// assert_eq!(password.reveal(), "hunter2");
/// ```
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Keeps this text from being shown.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the client that logs in with it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
