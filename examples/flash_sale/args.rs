//! The command line.

pub(crate) const USAGE: &str = "\
Usage: flash_sale [--url URL] [--workers N] [--buyers N] [--stock N]

  --url URL      where the lock is: redis://host:port or another server that dlock knows,
                 or sqlite://path; a new SQLite file if not given
  --workers N    processes, 1 to 64 (4)
  --buyers N     buyers in all processes together, up to 10000 (1000)
  --stock N      things to sell, fewer than buyers (100)";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) url: Option<String>,
    pub(crate) workers: u32,
    pub(crate) buyers: u32,
    pub(crate) stock: u32,
}

#[derive(Debug)]
pub(crate) enum Ask {
    Run(Args),
    Help,
}

/// Reads the arguments, or says what is wrong with them. No value is repeated: it may be a URL with a password.
pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Ask, String> {
    let mut args = Args { url: None, workers: 4, buyers: 1000, stock: 100 };
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if option == "--help" || option == "-h" {
            return Ok(Ask::Help);
        }
        let mut value = || value.clone().or_else(|| words.next()).ok_or_else(|| format!("{option} needs a value"));
        match option {
            "--url" => args.url = Some(value()?),
            "--workers" => args.workers = number(option, &value()?)?,
            "--buyers" => args.buyers = number(option, &value()?)?,
            "--stock" => args.stock = number(option, &value()?)?,
            _ => return Err("unknown argument".into()),
        }
    }
    check(&args)?;
    Ok(Ask::Run(args))
}

fn number(option: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("{option} needs a whole number"))
}

fn check(args: &Args) -> Result<(), String> {
    if !(1..=64).contains(&args.workers) {
        return Err("--workers must be 1 to 64".into());
    }
    if args.buyers > 10_000 || args.buyers < args.workers {
        return Err("--buyers must be up to 10000, and at least one for each worker".into());
    }
    if args.stock == 0 || args.stock >= args.buyers {
        return Err("--stock must be at least 1 and less than --buyers, or nothing could be oversold".into());
    }
    match args.url.as_deref().map(|url| url.split_once("://")) {
        None => Ok(()),
        Some(Some((scheme, _))) if scheme.eq_ignore_ascii_case("memory") => {
            Err("--url memory:// locks inside one process only, and this sale has several".into())
        }
        Some(Some(_)) => Ok(()),
        Some(None) => Err("--url needs a URL, such as redis://127.0.0.1:6379".into()),
    }
}
