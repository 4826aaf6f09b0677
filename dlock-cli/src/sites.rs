//! `dlock sites`: the locked functions of a program, from what it printed by `dlock::explain().to_json()`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::output::{print_json, print_table};

#[derive(Debug, Deserialize, Serialize)]
struct Site {
    name: String,
    keys: Vec<String>,
    backend: String,
    place: String,
    settings: BTreeMap<String, String>,
}

pub(crate) fn show(file: &Path, json: bool) -> Result<Exit, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let mut text = String::new();
    match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    }
    .map_err(|error| fault(&error))?;
    let sites: Vec<Site> = serde_json::from_str(&text)
        .map_err(|error| fault(&format!("it is not what `dlock::explain()?.to_json()` gives: {error}")))?;
    if json {
        print_json(&sites)?;
    } else {
        let rows = sites.into_iter().map(|site| {
            let settings: Vec<_> = site.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            vec![site.name, site.keys.join(", "), site.backend, settings.join(" "), site.place]
        });
        print_table(&["FUNCTION", "KEYS", "BACKEND", "SETTINGS", "PLACE"], rows)?;
    }
    Ok(Exit::OK)
}
