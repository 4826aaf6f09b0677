//! The token that every request carries. One in a file is read again when the server refuses it, so it can be replaced
//! while the process runs.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlock_contract::{Address, Error, Result, Secret};
use http::header::HeaderValue;

use crate::server::environment::Lookup;

pub(crate) struct Token {
    file: Option<File>,
    present: Mutex<Option<Secret>>,
}

/// A file with a token.
struct File {
    /// The option or the variable that names it.
    named_by: &'static str,
    path: PathBuf,
}

impl Token {
    /// The token of the URL, or else of the variables. A file is read.
    pub(crate) fn of(address: &Address, lookup: Lookup) -> Result<Self> {
        match (address.password(), address.option("token_file")) {
            (Some(_), Some(_)) => {
                Err(Error::config("token_file", "the URL has a token, and a file with a token: give one"))
            }
            (Some(token), None) => Self::fixed("url", token.reveal()),
            (None, Some(path)) => Self::in_file("token_file", path),
            (None, None) => match (lookup("CONSUL_HTTP_TOKEN"), lookup("CONSUL_HTTP_TOKEN_FILE")) {
                (Some(token), _) => Self::fixed("CONSUL_HTTP_TOKEN", &token),
                (None, Some(path)) => Self::in_file("CONSUL_HTTP_TOKEN_FILE", &path),
                (None, None) => Ok(Self { file: None, present: Mutex::default() }),
            },
        }
    }

    fn fixed(field: &str, text: &str) -> Result<Self> {
        Ok(Self { file: None, present: Mutex::new(Some(checked(field, text)?)) })
    }

    fn in_file(named_by: &'static str, path: &str) -> Result<Self> {
        let file = File { named_by, path: path.into() };
        let present = Mutex::new(Some(file.read()?));
        Ok(Self { file: Some(file), present })
    }

    /// The token, as a header that no log shows.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(self.present().as_ref()?.reveal()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// After a refusal of this header: whether there is another token by now. The file may have a new one.
    pub(crate) fn was_replaced(&self, refused: Option<&HeaderValue>) -> bool {
        // Somebody may be writing the file. Then the refusal stands, and the next one looks again.
        if let Some(token) = self.file.as_ref().and_then(|file| file.read().ok()) {
            *self.present() = Some(token);
        }
        self.header().as_ref() != refused
    }

    fn present(&self) -> MutexGuard<'_, Option<Secret>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File {
    fn read(&self) -> Result<Secret> {
        // The path is not repeated: it may be a token in the wrong place.
        let read = fs::read_to_string(&self.path).map_err(|error| {
            Error::config(self.named_by, format!("the token file cannot be read: {}", error.kind()))
        })?;
        checked(self.named_by, &read)
    }
}

fn checked(field: &str, text: &str) -> Result<Secret> {
    match text.trim() {
        "" => Err(Error::config(field, "the token is empty")),
        // So every token can be a header.
        text if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret::new(text.to_owned())),
        _ => Err(Error::config(field, "a token has no blanks, and only ASCII characters")),
    }
}
