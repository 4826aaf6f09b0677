//! The command line, the same for all examples.

pub(crate) const USAGE: &str = "\
Usage: [--url URL] [--unlocked]

  --url URL     where the locks are: redis://host:port or another server that dlock knows; a new SQLite file if not given
  --unlocked    the workers' locks do not exclude each other: the example must then fail, and so prove that it looks";

#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) url: Option<String>,
    pub(crate) unlocked: bool,
}

/// Reads the arguments, or says what is wrong with them. No value is repeated: it may be a URL with a password.
pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--url" => args.url = Some(words.next().ok_or("--url needs a value")?),
            "--unlocked" => args.unlocked = true,
            _ => return Err("unknown argument".into()),
        }
    }
    match args.url.as_deref().map(|url| url.split_once("://")) {
        Some(None) => Err("--url needs a URL, such as redis://127.0.0.1:6379".into()),
        Some(Some(("memory", _))) => {
            Err("memory:// locks inside one process only, and this example has several".into())
        }
        _ => Ok(args),
    }
}
