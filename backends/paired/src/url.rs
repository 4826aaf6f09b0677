//! The URLs of pairs, which name two installed stores.

use std::sync::Arc;

use dlock_contract::{Address, Backend, Clock, Error, OptionRow, Result, UrlBody, UrlForm};

use crate::migrating::{Migrating, Numbers};
use crate::paired::{GateDown, Paired};

/// The forms of the URLs that [`open`] takes.
pub const FORMS: [&UrlForm; 2] = [&PAIRED, &MIGRATING];

const PAIRED: UrlForm = UrlForm::new("a paired URL", "paired://?gate=NAME&authority=NAME", &["paired"], UrlBody::Hosts)
    .options(&[
        OptionRow::new("gate", "the name of an installed store"),
        OptionRow::new("authority", "the name of an installed store"),
        OptionRow::one_of("gate_down", &["fail", "authority"]),
    ]);

const MIGRATING: UrlForm =
    UrlForm::new("a migrating URL", "migrating://?old=NAME&new=NAME", &["migrating"], UrlBody::Hosts).options(&[
        OptionRow::new("old", "the name of an installed store"),
        OptionRow::new("new", "the name of an installed store"),
        OptionRow::one_of("numbers", &["old", "new"]),
    ]);

/// The names of the two stores in a URL of one of these forms.
///
/// # Errors
/// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) if the URL does not name exactly two stores.
pub fn members(address: &Address) -> Result<[&str; 2]> {
    if !address.hosts().is_empty()
        || !address.path().is_empty()
        || address.user().is_some()
        || address.password().is_some()
    {
        return Err(address.wrong("it must name two installed stores, and no host, user or path"));
    }
    let [first, second] = if address.scheme() == "paired" { ["gate", "authority"] } else { ["old", "new"] };
    let named = |option: &'static str| {
        let missing = || address.wrong(&format!("the parameter `{option}` is missing"));
        address.option(option).ok_or_else(missing)
    };
    let members = [named(first)?, named(second)?];
    if members[0] == members[1] {
        return Err(Error::config(
            second,
            format!("`{first}` and `{second}` must be two stores, but they are the same one"),
        ));
    }
    Ok(members)
}

/// Makes the store of a URL of one of these forms. `installed` finds the stores by name. The pair does not close them.
///
/// # Errors
/// As [`members`], [`PairedBuilder::build`](crate::PairedBuilder::build) and
/// [`MigratingBuilder::build`](crate::MigratingBuilder::build); else what `installed` fails with.
pub fn open(
    address: &Address,
    clock: &Clock,
    installed: &dyn Fn(&str) -> Result<Arc<dyn Backend>>,
) -> Result<Arc<dyn Backend>> {
    let [first, second] = members(address)?;
    let (first, second) = (installed(first)?, installed(second)?);
    if address.scheme() == "paired" {
        let gate_down = match address.option("gate_down") {
            Some("authority") => GateDown::Authority,
            _ => GateDown::Fail,
        };
        let pair = Paired::builder(first, second).gate_down(gate_down).clock(clock).keep_members_open().build()?;
        return Ok(Arc::new(pair));
    }
    let numbers = if address.option("numbers") == Some("new") { Numbers::New } else { Numbers::Old };
    Ok(Arc::new(Migrating::builder(first, second).numbers(numbers).clock(clock).keep_members_open().build()?))
}
