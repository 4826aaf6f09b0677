//! The token of every request. A token in a file is read again when the server refuses it, so it can be replaced while the
//! process runs.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Error, Result};
use dlock_store::{Address, Secret, background};
use http::header::HeaderValue;

use crate::server::environment::Lookup;

pub(crate) struct Token {
    file: Option<Arc<File>>,
    present: Arc<Mutex<Option<Secret>>>,
}

/// A file with a token.
struct File {
    /// The option or the variable that names it.
    named_by: &'static str,
    path: PathBuf,
    /// The right to read it. One reader has it, so a file that hangs blocks one thread, however many requests are refused.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Token {
    /// The token of the URL, or else of the environment variables. Reads the token file, if one is named.
    pub(crate) fn of(address: &Address, lookup: Lookup) -> Result<Self> {
        match (address.password(), address.option("token_file")) {
            (Some(_), Some(_)) => {
                Err(Error::config("token_file", "the URL has a token and also names a token file: use one of them"))
            }
            (Some(token), None) => Self::fixed("url", token.reveal()),
            (None, Some(path)) if address.reads_files() => Self::in_file("token_file", path),
            (None, Some(_)) => Ok(Self { file: None, present: Arc::default() }),
            (None, None) => match (lookup("CONSUL_HTTP_TOKEN"), lookup("CONSUL_HTTP_TOKEN_FILE")) {
                (Some(token), _) => Self::fixed("CONSUL_HTTP_TOKEN", &token),
                (None, Some(path)) if address.reads_files() => Self::in_file("CONSUL_HTTP_TOKEN_FILE", &path),
                (None, _) => Ok(Self { file: None, present: Arc::default() }),
            },
        }
    }

    fn fixed(field: &str, text: &str) -> Result<Self> {
        Ok(Self { file: None, present: Arc::new(Mutex::new(Some(checked(field, text)?))) })
    }

    fn in_file(named_by: &'static str, path: &str) -> Result<Self> {
        let file = File { named_by, path: path.into(), turn: Arc::default() };
        let present = Arc::new(Mutex::new(Some(file.read()?)));
        Ok(Self { file: Some(Arc::new(file)), present })
    }

    /// The token, as a header that no log shows.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(self.present().as_ref()?.reveal()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Waits until the file was read again, and gives its token. `None`: there is no other token than the refused one.
    ///
    /// The file may be on a disk that hangs, so the caller bounds the wait.
    pub(crate) async fn replaced(&self, refused: Option<&HeaderValue>) -> Option<HeaderValue> {
        let file = self.file.as_ref()?;
        let turn = file.turn.clone().lock_owned().await;
        // Another request may have read it meanwhile.
        if self.header().as_ref() == refused {
            let (file, present) = (file.clone(), self.present.clone());
            let reading = move || {
                let _turn = turn;
                // If the file is being written, the old token stays, and the next refusal reads the file again.
                if let Ok(token) = file.read() {
                    *lock(&present) = Some(token);
                }
            };
            background().ok()?.run_blocking(reading).await.ok()?;
        }
        self.header().filter(|token| Some(token) != refused)
    }

    fn present(&self) -> MutexGuard<'_, Option<Secret>> {
        lock(&self.present)
    }
}

fn lock(token: &Mutex<Option<Secret>>) -> MutexGuard<'_, Option<Secret>> {
    token.lock().unwrap_or_else(PoisonError::into_inner)
}

impl File {
    fn read(&self) -> Result<Secret> {
        // The error does not contain the path, because it may be a token in the wrong place.
        let read = fs::read_to_string(&self.path).map_err(|error| {
            Error::config(self.named_by, format!("the token file cannot be read: {}", error.kind()))
        })?;
        checked(self.named_by, &read)
    }
}

fn checked(field: &str, text: &str) -> Result<Secret> {
    match text.trim() {
        "" => Err(Error::config(field, "the token is empty")),
        // Such a token is always valid in a header.
        text if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret::new(text.to_owned())),
        _ => Err(Error::config(field, "a token must have only visible ASCII characters")),
    }
}
